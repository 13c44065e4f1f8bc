! Calls whose outcome depends on timing, and the clock, from Fortran: through mpif.h, `use mpi` and
! `use mpi_f08`. What was seen goes to the next rank as data, so that replicas that saw different things differ; what is
! printed does not depend on it.

! One integer, folded as check.h's programs do it.
pure integer(kind=8) function fold(seen, number)
  implicit none
  integer(kind=8), intent(in) :: seen
  integer, intent(in) :: number
  fold = mod(seen * 31_8 + int(number, 8) + 7_8, 1000000007_8)
end function fold

subroutine need(condition, what)
  implicit none
  include 'mpif.h'
  logical, intent(in) :: condition
  character(len=*), intent(in) :: what
  integer :: ierr
  if (condition) return
  write (0, *) 'FAILED fortran_outcomes: ', what
  call MPI_Abort(MPI_COMM_WORLD, 99, ierr)
end subroutine need

! What was seen, and the clocks, go round as data.
subroutine show(seen, rank, size)
  implicit none
  include 'mpif.h'
  integer(kind=8), intent(in) :: seen
  integer, intent(in) :: rank, size
  integer(kind=8) :: count
  integer :: ierr
  double precision :: mine(4), got(4)
  call system_clock(count)
  mine(1) = dble(seen)
  mine(2) = dble(count)
  mine(3) = MPI_Wtick()
  mine(4) = MPI_Wtime()
  call MPI_Sendrecv(mine, 4, MPI_DOUBLE_PRECISION, mod(rank + 1, size), 90, got, 4, MPI_DOUBLE_PRECISION, &
       mod(rank + size - 1, size), 90, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call need(got(3) > 0d0, 'clock')
end subroutine show

! Test, Waitany, Waitsome, Testsome on receives of which nobody knows the order.
subroutine with_header(rank, size, seen, total)
  implicit none
  include 'mpif.h'
  integer, parameter :: n = 6
  integer, intent(in) :: rank, size
  integer(kind=8), intent(inout) :: seen, total
  integer(kind=8), external :: fold
  integer :: in(n), out(n), requests(2 * n), statuses(MPI_STATUS_SIZE, 2 * n), status(MPI_STATUS_SIZE)
  integer :: indices(2 * n), i, k, found, left, ierr, round
  logical :: flag
  do round = 1, 8
     in = -1
     do i = 1, n
        call MPI_Irecv(in(i), 1, MPI_INTEGER, mod(rank + size - 1, size), i, MPI_COMM_WORLD, requests(i), ierr)
     end do
     do i = 1, n
        k = mod(i * 5 + rank, n) + 1
        out(k) = 100 * rank + k
        call MPI_Isend(out(k), 1, MPI_INTEGER, mod(rank + 1, size), k, MPI_COMM_WORLD, requests(n + k), ierr)
     end do
     left = 2 * n
     if (mod(round, 4) == 0) then
        do while (left > 0)
           call MPI_Waitany(2 * n, requests, k, status, ierr)
           seen = fold(seen, k)
           left = left - 1
        end do
     else if (mod(round, 4) == 1) then
        do while (left > 0)
           call MPI_Waitsome(2 * n, requests, found, indices, statuses, ierr)
           do i = 1, found
              seen = fold(seen, indices(i))
           end do
           left = left - found
        end do
     else if (mod(round, 4) == 2) then
        do while (left > 0)
           call MPI_Testsome(2 * n, requests, found, indices, statuses, ierr)
           seen = fold(seen, found)
           do i = 1, found
              seen = fold(seen, indices(i))
           end do
           left = left - found
        end do
     else
        do i = 1, 2 * n
           flag = .false.
           do while (.not. flag)
              call MPI_Test(requests(i), flag, status, ierr)
              seen = fold(seen, merge(1, 0, flag))
           end do
        end do
     end if
     do i = 1, n
        call need(in(i) == 100 * mod(rank + size - 1, size) + i, 'data of mpif.h')
        total = total + in(i)
     end do
     call show(seen, rank, size)
  end do
end subroutine with_header

! Probes of both kinds, wildcards, Request_get_status, cancelled receives.
subroutine with_module(rank, size, seen, total)
  use mpi
  implicit none
  integer, intent(in) :: rank, size
  integer(kind=8), intent(inout) :: seen, total
  integer(kind=8), external :: fold
  integer :: value, request, status(MPI_STATUS_SIZE), i, ierr, round, nothing
  logical :: flag
  do round = 1, 5
     if (rank == 0) then
        do i = 1, size - 1
           if (mod(round, 2) == 0) then
              call MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
           else
              flag = .false.
              do while (.not. flag)
                 call MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, flag, status, ierr)
                 seen = fold(seen, merge(1, 0, flag))
              end do
           end if
           seen = fold(seen, status(MPI_SOURCE))
           call MPI_Recv(value, 1, MPI_INTEGER, status(MPI_SOURCE), status(MPI_TAG), MPI_COMM_WORLD, status, ierr)
           call need(value == 1000 * round + status(MPI_SOURCE), 'data of a probed message')
           total = total + value
        end do
     else
        value = 1000 * round + rank
        call MPI_Send(value, 1, MPI_INTEGER, 0, 30 + rank, MPI_COMM_WORLD, ierr)
     end if
     call MPI_Barrier(MPI_COMM_WORLD, ierr)

     ! A receive that nothing matches can be cancelled; of one that something may match both is right.
     call MPI_Irecv(nothing, 1, MPI_INTEGER, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, request, ierr)
     call MPI_Cancel(request, ierr)
     call MPI_Wait(request, status, ierr)
     call MPI_Test_cancelled(status, flag, ierr)
     call need(flag, 'a receive that nothing matches was not cancelled')
     value = rank
     call MPI_Send(value, 1, MPI_INTEGER, mod(rank + 1, size), 78, MPI_COMM_WORLD, ierr)
     call MPI_Irecv(nothing, 1, MPI_INTEGER, mod(rank + size - 1, size), 78, MPI_COMM_WORLD, request, ierr)
     call MPI_Request_get_status(request, flag, status, ierr)
     seen = fold(seen, merge(1, 0, flag))
     call MPI_Cancel(request, ierr)
     call MPI_Wait(request, status, ierr)
     call MPI_Test_cancelled(status, flag, ierr)
     seen = fold(seen, merge(1, 0, flag))
     if (flag) call MPI_Recv(nothing, 1, MPI_INTEGER, MPI_ANY_SOURCE, 78, MPI_COMM_WORLD, status, ierr)
     call need(nothing == mod(rank + size - 1, size), 'data after MPI_Cancel')
     total = total + nothing
     call show(seen, rank, size)
  end do
end subroutine with_module

! Matched probes, Testany, Testall and a non-blocking collective among them.
subroutine with_f08(rank, size, seen, total)
  use mpi_f08
  implicit none
  integer, intent(in) :: rank, size
  integer(kind=8), intent(inout) :: seen, total
  integer(kind=8), external :: fold
  type(MPI_Request) :: requests(3)
  type(MPI_Status) :: status, statuses(3)
  type(MPI_Message) :: message
  integer, asynchronous :: out, in, mine, sum
  integer :: k, round, value
  logical :: flag
  do round = 1, 6
     out = 10 * round + rank
     mine = rank
     call MPI_Iallreduce(mine, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
     call MPI_Irecv(in, 1, MPI_INTEGER, MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, requests(2))
     call MPI_Isend(out, 1, MPI_INTEGER, mod(rank + 1, size), 50, MPI_COMM_WORLD, requests(3))
     flag = .false.
     if (mod(round, 2) == 0) then
        do while (.not. flag)
           call MPI_Testall(3, requests, flag, statuses)
           seen = fold(seen, merge(1, 0, flag))
        end do
     else
        do k = 1, 3
           flag = .false.
           do while (.not. flag)
              call MPI_Testany(3, requests, value, flag, status)
              seen = fold(seen, merge(value, 0, flag))
           end do
        end do
     end if
     call need(in == 10 * round + mod(rank + size - 1, size), 'data of mpi_f08')
     call need(sum == size * (size - 1) / 2, 'sum of mpi_f08')
     total = total + in + sum
     call MPI_Barrier(MPI_COMM_WORLD)

     call MPI_Isend(out, 1, MPI_INTEGER, mod(rank + 1, size), 51, MPI_COMM_WORLD, requests(1))
     flag = .false.
     do while (.not. flag)
        call MPI_Improbe(MPI_ANY_SOURCE, 51, MPI_COMM_WORLD, flag, message, status)
        seen = fold(seen, merge(1, 0, flag))
     end do
     call MPI_Mrecv(value, 1, MPI_INTEGER, message, status)
     call MPI_Wait(requests(1), status)
     call need(value == 10 * round + mod(rank + size - 1, size), 'data of a matched message')
     total = total + value
     call MPI_Barrier(MPI_COMM_WORLD)
     call show(seen, rank, size)
  end do
end subroutine with_f08

program fortran_outcomes
  use mpi
  implicit none
  integer :: rank, size, ierr
  integer(kind=8) :: seen, total, every
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  seen = 1
  total = 0
  call with_header(rank, size, seen, total)
  call with_module(rank, size, seen, total)
  call with_f08(rank, size, seen, total)
  total = total * (rank + 1)
  every = 0
  call MPI_Allreduce(total, every, 1, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0) write (*, '(a, z16.16)') 'RESULT fortran_outcomes ', every
  call MPI_Finalize(ierr)
end program fortran_outcomes
