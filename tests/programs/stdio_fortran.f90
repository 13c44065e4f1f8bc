! Writes to units 6 and 0 in Fortran's ways, flushed and not, before and after MPI_Finalize.
program stdio_fortran
  use mpi
  implicit none
  integer :: error, rank, i
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  if (rank == 0) then
    print *, 'print', 1.5d0, 7
    write (*, '(a, i0)', advance='no') 'no advance ', 3
    write (*, '(a)') ' and the rest'
    do i = 1, 200
      write (6, '(i4, f20.12)') i, sqrt(real(i, 8))
    end do
    write (0, '(a)') 'an error'
    flush (6)
    write (*, '(a)') 'not flushed'
  end if
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Finalize(error)
  if (rank == 0) write (*, '(a)') 'after MPI_Finalize'
end program stdio_fortran
