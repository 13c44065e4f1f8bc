! What Fortran programs ask for: random seeds, clocks, the process, the processor's name; before MPI_Init and after it.
program sources_fortran
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use mpi
  implicit none
  integer :: error, rank, ranks, i, parts, length
  integer(int64) :: mine(40), theirs(40)
  character(len=MPI_MAX_PROCESSOR_NAME) :: name

  parts = 0
  call ask()
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call ask()
  call add(nint(1.0e6_real64 * MPI_Wtime(), int64))
  call MPI_Get_processor_name(name, length, error)
  do i = 1, parts
    call MPI_Sendrecv(mine(i), 1, MPI_INTEGER8, mod(rank + 1, ranks), i, theirs(i), 1, MPI_INTEGER8, &
                      mod(rank + ranks - 1, ranks), i, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  end do
  call MPI_Sendrecv(name, length, MPI_CHARACTER, mod(rank + 1, ranks), 99, name, len(name), MPI_CHARACTER, &
                    mod(rank + ranks - 1, ranks), 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
  if (rank == 0) print '(a)', 'RESULT sources_fortran done'
  call MPI_Finalize(error)

contains

  subroutine add(number)
    integer(int64), intent(in) :: number
    parts = parts + 1
    mine(parts) = number
  end subroutine add

  subroutine ask()
    real(real64) :: number, seconds
    integer(int64) :: count
    integer :: stamp(8)
    call random_init(repeatable=.false., image_distinct=.false.)
    call random_number(number)
    call add(nint(1.0e15_real64 * number, int64))
    call system_clock(count)
    call add(count)
    call cpu_time(seconds)
    call add(nint(1.0e6_real64 * seconds, int64))
    call date_and_time(values=stamp)
    call add(int(stamp(7) * 1000 + stamp(8), int64))
    call add(int(getpid(), int64))
  end subroutine ask

end program sources_fortran
