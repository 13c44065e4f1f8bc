! The same as fortran_p2p through `use mpi_f08`: handles are types, the error argument is left out, and buffers of
! non-blocking calls are asynchronous.
program fortran_f08
  use mpi_f08
  implicit none
  integer, parameter :: n = 5000, rounds = 10
  integer :: rank, size, next, previous, round, i, count
  type(MPI_Datatype) :: column
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: statuses(2), status
  integer, asynchronous :: out(n), in(n)
  integer :: matrix(20, 30), row(30)
  integer(kind=8) :: checksum, total
  double precision :: mine(2), largest(2), now, earlier

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  next = mod(rank + 1, size)
  previous = mod(rank + size - 1, size)
  checksum = 17
  earlier = MPI_Wtime()

  do round = 1, rounds
     do i = 1, n
        out(i) = element(rank, round, i)
     end do
     in = 0
     call MPI_Irecv(in, n, MPI_INTEGER, previous, 1, MPI_COMM_WORLD, requests(1))
     call MPI_Isend(out, n, MPI_INTEGER, next, 1, MPI_COMM_WORLD, requests(2))
     call MPI_Waitall(2, requests, statuses)
     call look(in, n, previous, round)
     call MPI_Get_count(statuses(1), MPI_INTEGER, count)
     call need(count == n .and. statuses(1)%MPI_SOURCE == previous, 'status of Irecv')

     in = 0
     call MPI_Sendrecv(out, 100, MPI_INTEGER, next, 2, in, n, MPI_INTEGER, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &
          status)
     call look(in, 100, previous, round)
     call need(status%MPI_SOURCE == previous .and. status%MPI_TAG == 2, 'status of Sendrecv')

     if (rank == 0 .and. size > 1) then
        do i = 1, size - 1
           call MPI_Recv(in, n, MPI_INTEGER, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status)
           call need(status%MPI_TAG == 100 + status%MPI_SOURCE, 'source and tag of a wildcard')
           call look(in, 50, status%MPI_SOURCE, round)
        end do
     else if (rank > 0) then
        call MPI_Send(out, 50, MPI_INTEGER, 0, 100 + rank, MPI_COMM_WORLD)
     end if
     call MPI_Barrier(MPI_COMM_WORLD)

     now = MPI_Wtime()
     mine(1) = now
     mine(2) = MPI_Wtick()
     call need(now >= earlier .and. mine(2) > 0d0, 'clock')
     earlier = now
     call MPI_Allreduce(mine, largest, 2, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
     call need(largest(1) >= now, 'largest clock')
  end do

  ! A row of a matrix is a vector.
  matrix = -1
  matrix(7, :) = (/ (element(rank, 99, i), i = 1, 30) /)
  call MPI_Type_vector(30, 1, 20, MPI_INTEGER, column)
  call MPI_Type_commit(column)
  call MPI_Sendrecv(matrix(7, 1), 1, column, next, 3, row, 30, MPI_INTEGER, previous, 3, MPI_COMM_WORLD, status)
  call look(row, 30, previous, 99)
  call MPI_Sendrecv(row, 30, MPI_INTEGER, previous, 4, matrix(3, 1), 1, column, next, 4, MPI_COMM_WORLD, status)
  call look(matrix(3, :), 30, rank, 99) ! my own row, back again
  call need(all(matrix(4, :) == -1), 'gaps of a vector')
  call MPI_Type_free(column)

  total = 0
  call MPI_Allreduce(checksum, total, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0) write (*, '(a, z16.16)') 'RESULT fortran_f08 ', total
  call MPI_Finalize()

contains

  pure integer function element(who, number, at)
    integer, intent(in) :: who, number, at
    element = who * 100000 + number * 7919 + at * 3
  end function element

  subroutine need(condition, what)
    logical, intent(in) :: condition
    character(len=*), intent(in) :: what
    if (condition) return
    write (0, *) 'FAILED fortran_f08 rank', rank, ': ', what
    call MPI_Abort(MPI_COMM_WORLD, 99)
  end subroutine need

  subroutine look(values, length, who, number)
    integer, intent(in) :: values(:), length, who, number
    integer :: at
    integer(kind=8) :: hash
    hash = number
    do at = 1, length
       call need(values(at) == element(who, number, at), 'wrong data')
       hash = mod(hash * 31 + values(at), 1000000007_8)
    end do
    checksum = checksum + hash ! a sum: the order of arrival differs from run to run
  end subroutine look
end program fortran_f08
