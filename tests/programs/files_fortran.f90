! Files as Fortran knows them: formatted, unformatted, direct, stream, scratch, append, replace, inquire, delete.
program files_fortran
    use mpi
    implicit none
    integer :: ierr, rank, size, unit, status, i, bytes
    integer(8) :: sum, all
    logical :: there
    character(len=40) :: name, line
    real(8) :: values(100), back(100)

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
    sum = 0

    write (name, '(a,i0)') 'formatted.', rank
    inquire (file=name, exist=there)
    if (there) call wrong('it is there already')
    open (newunit=unit, file=name, status='new', action='write')
    do i = 1, 50
        write (unit, '(a,i6,es14.6)') 'line', i, sqrt(real(i*(rank + 1), 8))
    end do
    close (unit)
    inquire (file=name, exist=there)
    if (.not. there) call wrong('it is not there')
    open (newunit=unit, file=name, status='new', iostat=status)
    if (status == 0) call wrong('status=new opened what is there')
    open (newunit=unit, file=name, status='old', position='append', action='write')
    write (unit, '(a)') 'appended'
    close (unit)
    open (newunit=unit, file=name, status='old', action='read')
    do i = 1, 51
        read (unit, '(a)') line
        sum = sum*31 + ichar(line(6:6)) + ichar(line(10:10))
    end do
    if (line /= 'appended') call wrong('the last line is '//line)
    read (unit, '(a)', iostat=status) line
    if (status >= 0) call wrong('there is more in it')
    close (unit)

    values = [(real(i, 8)*(rank + 1), i=1, 100)]
    write (name, '(a,i0)') 'unformatted.', rank
    open (newunit=unit, file=name, form='unformatted', status='replace')
    write (unit) values
    rewind (unit)
    read (unit) back
    close (unit)
    if (maxval(abs(back - values)) > 0) call wrong('unformatted')

    write (name, '(a,i0)') 'direct.', rank
    open (newunit=unit, file=name, access='direct', recl=8, form='unformatted')
    do i = 100, 1, -1
        write (unit, rec=i) values(i)
    end do
    read (unit, rec=37) back(1)
    close (unit)
    if (abs(back(1) - values(37)) > 0) call wrong('direct')

    open (newunit=unit, status='scratch')
    write (unit, '(a)') 'scratch'
    rewind (unit)
    read (unit, '(a)') line
    close (unit)
    if (line /= 'scratch') call wrong('scratch')

    if (rank == 0) then
        open (newunit=unit, file='before', status='old', access='stream', form='formatted', position='append')
        write (unit, '(a)') 'after'
        close (unit)
        inquire (file='before', size=bytes)
        if (bytes /= 13) call wrong('size')
        open (newunit=unit, file='obsolete', status='old')
        close (unit, status='delete')
        inquire (file='obsolete', exist=there)
        if (there) call wrong('deleted and there')
    end if
    call MPI_Reduce(sum, all, 1, MPI_INTEGER8, MPI_SUM, 0, MPI_COMM_WORLD, ierr)
    if (rank == 0) print '(a,z16.16)', 'RESULT files_fortran ', all
    ! Still open at the end.
    write (name, '(a,i0)') 'open.', rank
    open (newunit=unit, file=name)
    write (unit, '(a)') 'not closed'
    call MPI_Finalize(ierr)

contains
    subroutine wrong(what)
        character(len=*), intent(in) :: what
        write (0, '(a,i0,2a)') 'FAILED rank ', rank, ': ', what
        call MPI_Abort(MPI_COMM_WORLD, 99, ierr)
    end subroutine
end program
