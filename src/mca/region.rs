//! What a process contributes to a collective operation, and where the standard defines a result for it (MPI-3.1,
//! chapter 5; neighbourhoods: 7.6): the memory that is compared between replicas.
//!
//! Arguments that the standard calls not significant at a process are not looked at, and memory that an operation does
//! not write (blocks of neighbours that are MPI_PROC_NULL, the result of MPI_Exscan at rank 0) is not compared: it may
//! hold anything.

use super::host::{Communicator, Datatype, SUCCESS};
use super::message::{Buffer, Region};
use ompi_headers as mpi;
use std::ffi::{c_int, c_void};

/// Which memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// What the process contributes.
    Input,
    /// What it gets.
    Result,
}
use Side::{Input, Result as Got};

type P = *const c_void;
type M = *mut c_void;
type I = c_int;
type A = *const c_int;
type D = *mut Datatype;

/// A process's place in a communicator.
pub struct Group {
    comm: *mut Communicator,
    rank: usize,
    /// Processes of its own group.
    own: usize,
    /// Processes that an operation of all with all exchanges data with: those of the remote group of an
    /// intercommunicator.
    peers: usize,
    inter: bool,
}

/// MPI_ROOT.
const ROOT: c_int = mpi::MPI_ROOT;

fn in_place(buffer: P) -> bool {
    // SAFETY: an address, compared and not read.
    unsafe { mpi::redmpi_shim_is_in_place(buffer) != 0 }
}

fn number(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(0)
}

fn extent(datatype: D) -> isize {
    // SAFETY: a live datatype of the application's.
    unsafe { mpi::redmpi_shim_extent(datatype) }
}

fn one(buffer: P, count: usize, datatype: D) -> Region {
    Region::One(Buffer { address: buffer.cast_mut(), count, datatype })
}

/// `count` elements, `at` elements behind the beginning.
fn part(buffer: P, at: isize, count: usize, datatype: D) -> Buffer {
    Buffer { address: buffer.cast_mut().wrapping_byte_offset(at * extent(datatype)), count, datatype }
}

fn at(numbers: A, index: usize) -> c_int {
    // SAFETY: the standard wants as many numbers as the operation has peers; callers stay below that.
    unsafe { *numbers.add(index) }
}

/// Blocks of their own lengths and places.
fn blocks(buffer: P, counts: A, displacements: A, datatype: D, peers: impl Iterator<Item = usize>) -> Region {
    Region::Many(
        peers
            .map(|peer| part(buffer, at(displacements, peer) as isize, number(at(counts, peer)), datatype))
            .collect(),
    )
}

/// Blocks of their own types, too; the places are in bytes.
fn typed(
    buffer: P,
    counts: A,
    displacement: impl Fn(usize) -> isize,
    types: *const *mut Datatype,
    peers: impl Iterator<Item = usize>,
) -> Region {
    Region::Many(
        peers
            .map(|peer| Buffer {
                address: buffer.cast_mut().wrapping_byte_offset(displacement(peer)),
                count: number(at(counts, peer)),
                // SAFETY: as in `at`.
                datatype: unsafe { *types.add(peer) },
            })
            .collect(),
    )
}

impl Group {
    /// Of a live communicator.
    pub fn of(comm: *mut Communicator) -> Group {
        // SAFETY: a live communicator.
        unsafe {
            let inter = mpi::redmpi_shim_comm_is_inter(comm) != 0;
            let own = number(mpi::redmpi_shim_comm_size(comm));
            let peers = if inter { number(mpi::redmpi_shim_comm_remote_size(comm)) } else { own };
            Group { comm, rank: number(mpi::redmpi_shim_comm_rank(comm)), own, peers, inter }
        }
    }

    /// Whether this process is the root.
    fn is_root(&self, root: c_int) -> bool {
        if self.inter {
            root == ROOT
        } else {
            usize::try_from(root).is_ok_and(|root| root == self.rank)
        }
    }

    /// Whether this process exchanges data with the root: in an intercommunicator those beside the root do not.
    fn takes_part(&self, root: c_int) -> bool {
        !self.inter || root >= 0
    }

    /// MPI_Barrier.
    pub fn barrier(&self, _: Side) -> Region {
        Region::none()
    }

    /// MPI_Bcast. The root's buffer is compared as a result, too: a wrong one is found where it is.
    pub fn bcast(&self, side: Side, buffer: M, count: I, datatype: D, root: I) -> Region {
        let has = match side {
            Input => self.is_root(root),
            Got => self.takes_part(root),
        };
        if has {
            one(buffer, number(count), datatype)
        } else {
            Region::none()
        }
    }

    fn reduction(&self, side: Side, send: P, receive: M, count: usize, datatype: D) -> Region {
        let buffer = if side == Got || in_place(send) { receive.cast_const() } else { send };
        one(buffer, count, datatype)
    }

    /// MPI_Allreduce, MPI_Scan.
    pub fn allreduce(
        &self,
        side: Side,
        send: P,
        receive: M,
        count: I,
        datatype: D,
        _: *mut mpi::ompi_op_t,
    ) -> Region {
        self.reduction(side, send, receive, number(count), datatype)
    }

    /// MPI_Exscan: rank 0 has no result.
    pub fn exscan(&self, side: Side, send: P, receive: M, count: I, datatype: D, _: *mut mpi::ompi_op_t) -> Region {
        if side == Got && self.rank == 0 {
            return Region::none();
        }
        self.reduction(side, send, receive, number(count), datatype)
    }

    /// MPI_Reduce.
    #[allow(clippy::too_many_arguments)]
    pub fn reduce(
        &self,
        side: Side,
        send: P,
        receive: M,
        count: I,
        datatype: D,
        _: *mut mpi::ompi_op_t,
        root: I,
    ) -> Region {
        match side {
            Got if self.is_root(root) => one(receive, number(count), datatype),
            Input if self.takes_part(root) => self.reduction(side, send, receive, number(count), datatype),
            _ => Region::none(),
        }
    }

    /// MPI_Reduce_scatter.
    pub fn reduce_scatter(
        &self,
        side: Side,
        send: P,
        receive: M,
        counts: A,
        datatype: D,
        _: *mut mpi::ompi_op_t,
    ) -> Region {
        let count = match side {
            Input => (0..self.own).map(|rank| number(at(counts, rank))).sum(),
            Got => number(at(counts, self.rank)),
        };
        self.reduction(side, send, receive, count, datatype)
    }

    /// MPI_Reduce_scatter_block.
    pub fn reduce_scatter_block(
        &self,
        side: Side,
        send: P,
        receive: M,
        count: I,
        datatype: D,
        _: *mut mpi::ompi_op_t,
    ) -> Region {
        let count = if side == Input { number(count) * self.own } else { number(count) };
        self.reduction(side, send, receive, count, datatype)
    }

    /// MPI_Gather.
    #[allow(clippy::too_many_arguments)]
    pub fn gather(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        count: I,
        datatype: D,
        root: I,
    ) -> Region {
        match side {
            Got if self.is_root(root) => one(receive, number(count) * self.peers, datatype),
            Input if self.takes_part(root) && in_place(send) => {
                let place = self.rank as isize * count as isize;
                Region::One(part(receive, place, number(count), datatype))
            }
            Input if self.takes_part(root) => one(send, number(send_count), send_type),
            _ => Region::none(),
        }
    }

    /// MPI_Gatherv.
    #[allow(clippy::too_many_arguments)]
    pub fn gatherv(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        counts: A,
        displacements: A,
        datatype: D,
        root: I,
    ) -> Region {
        match side {
            Got if self.is_root(root) => blocks(receive, counts, displacements, datatype, 0..self.peers),
            Input if self.takes_part(root) && in_place(send) => {
                blocks(receive, counts, displacements, datatype, self.rank..self.rank + 1)
            }
            Input if self.takes_part(root) => one(send, number(send_count), send_type),
            _ => Region::none(),
        }
    }

    /// MPI_Scatter.
    #[allow(clippy::too_many_arguments)]
    pub fn scatter(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        count: I,
        datatype: D,
        root: I,
    ) -> Region {
        match side {
            Got if self.takes_part(root) && !in_place(receive) => one(receive, number(count), datatype),
            Input if self.is_root(root) => one(send, number(send_count) * self.peers, send_type),
            _ => Region::none(),
        }
    }

    /// MPI_Scatterv.
    #[allow(clippy::too_many_arguments)]
    pub fn scatterv(
        &self,
        side: Side,
        send: P,
        counts: A,
        displacements: A,
        send_type: D,
        receive: M,
        count: I,
        datatype: D,
        root: I,
    ) -> Region {
        match side {
            Got if self.takes_part(root) && !in_place(receive) => one(receive, number(count), datatype),
            Input if self.is_root(root) => blocks(send, counts, displacements, send_type, 0..self.peers),
            _ => Region::none(),
        }
    }

    /// MPI_Allgather.
    #[allow(clippy::too_many_arguments)]
    pub fn allgather(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        count: I,
        datatype: D,
    ) -> Region {
        match side {
            Got => one(receive, number(count) * self.peers, datatype),
            Input if in_place(send) => {
                Region::One(part(receive, self.rank as isize * count as isize, number(count), datatype))
            }
            Input => one(send, number(send_count), send_type),
        }
    }

    /// MPI_Allgatherv.
    #[allow(clippy::too_many_arguments)]
    pub fn allgatherv(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        counts: A,
        displacements: A,
        datatype: D,
    ) -> Region {
        match side {
            Got => blocks(receive, counts, displacements, datatype, 0..self.peers),
            Input if in_place(send) => blocks(receive, counts, displacements, datatype, self.rank..self.rank + 1),
            Input => one(send, number(send_count), send_type),
        }
    }

    /// MPI_Alltoall.
    #[allow(clippy::too_many_arguments)]
    pub fn alltoall(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        count: I,
        datatype: D,
    ) -> Region {
        if side == Got || in_place(send) {
            one(receive, number(count) * self.peers, datatype)
        } else {
            one(send, number(send_count) * self.peers, send_type)
        }
    }

    /// MPI_Alltoallv.
    #[allow(clippy::too_many_arguments)]
    pub fn alltoallv(
        &self,
        side: Side,
        send: P,
        send_counts: A,
        send_displacements: A,
        send_type: D,
        receive: M,
        counts: A,
        displacements: A,
        datatype: D,
    ) -> Region {
        if side == Got || in_place(send) {
            blocks(receive, counts, displacements, datatype, 0..self.peers)
        } else {
            blocks(send, send_counts, send_displacements, send_type, 0..self.peers)
        }
    }

    /// MPI_Alltoallw.
    #[allow(clippy::too_many_arguments)]
    pub fn alltoallw(
        &self,
        side: Side,
        send: P,
        send_counts: A,
        send_displacements: A,
        send_types: *const D,
        receive: M,
        counts: A,
        displacements: A,
        types: *const D,
    ) -> Region {
        if side == Got || in_place(send) {
            typed(receive, counts, |peer| at(displacements, peer) as isize, types, 0..self.peers)
        } else {
            typed(send, send_counts, |peer| at(send_displacements, peer) as isize, send_types, 0..self.peers)
        }
    }

    /// The neighbours that data comes from (or goes to), by their place in the buffers; not those that are
    /// MPI_PROC_NULL.
    fn neighbours(&self, side: Side) -> Vec<usize> {
        let all = neighbours(self.comm, side).unwrap_or_default();
        all.iter().enumerate().filter(|(_, rank)| **rank != mpi::MPI_PROC_NULL).map(|(place, _)| place).collect()
    }

    /// MPI_Neighbor_allgather.
    #[allow(clippy::too_many_arguments)]
    pub fn neighbor_allgather(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        count: I,
        datatype: D,
    ) -> Region {
        if side == Input {
            return one(send, number(send_count), send_type);
        }
        let block = |place: usize| part(receive, place as isize * count as isize, number(count), datatype);
        Region::Many(self.neighbours(side).into_iter().map(block).collect())
    }

    /// MPI_Neighbor_allgatherv.
    #[allow(clippy::too_many_arguments)]
    pub fn neighbor_allgatherv(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        counts: A,
        displacements: A,
        datatype: D,
    ) -> Region {
        if side == Input {
            return one(send, number(send_count), send_type);
        }
        blocks(receive, counts, displacements, datatype, self.neighbours(side).into_iter())
    }

    /// MPI_Neighbor_alltoall.
    #[allow(clippy::too_many_arguments)]
    pub fn neighbor_alltoall(
        &self,
        side: Side,
        send: P,
        send_count: I,
        send_type: D,
        receive: M,
        count: I,
        datatype: D,
    ) -> Region {
        let (buffer, count, datatype) =
            if side == Input { (send, send_count, send_type) } else { (receive.cast_const(), count, datatype) };
        let block = |place: usize| part(buffer, place as isize * count as isize, number(count), datatype);
        Region::Many(self.neighbours(side).into_iter().map(block).collect())
    }

    /// MPI_Neighbor_alltoallv.
    #[allow(clippy::too_many_arguments)]
    pub fn neighbor_alltoallv(
        &self,
        side: Side,
        send: P,
        send_counts: A,
        send_displacements: A,
        send_type: D,
        receive: M,
        counts: A,
        displacements: A,
        datatype: D,
    ) -> Region {
        let places = self.neighbours(side).into_iter();
        if side == Input {
            blocks(send, send_counts, send_displacements, send_type, places)
        } else {
            blocks(receive, counts, displacements, datatype, places)
        }
    }

    /// MPI_Neighbor_alltoallw.
    #[allow(clippy::too_many_arguments)]
    pub fn neighbor_alltoallw(
        &self,
        side: Side,
        send: P,
        send_counts: A,
        send_displacements: *const mpi::MPI_Aint,
        send_types: *const D,
        receive: M,
        counts: A,
        displacements: *const mpi::MPI_Aint,
        types: *const D,
    ) -> Region {
        let places = self.neighbours(side).into_iter();
        // SAFETY: as in `at`.
        let place = |displacements: *const mpi::MPI_Aint, peer: usize| unsafe { *displacements.add(peer) };
        if side == Input {
            typed(send, send_counts, |peer| place(send_displacements, peer), send_types, places)
        } else {
            typed(receive, counts, |peer| place(displacements, peer), types, places)
        }
    }
}

extern "C" {
    fn PMPI_Topo_test(comm: *mut Communicator, status: *mut c_int) -> c_int;
    fn PMPI_Cartdim_get(comm: *mut Communicator, dimensions: *mut c_int) -> c_int;
    fn PMPI_Cart_shift(
        comm: *mut Communicator,
        direction: c_int,
        by: c_int,
        source: *mut c_int,
        destination: *mut c_int,
    ) -> c_int;
    fn PMPI_Graph_neighbors_count(comm: *mut Communicator, rank: c_int, count: *mut c_int) -> c_int;
    fn PMPI_Graph_neighbors(comm: *mut Communicator, rank: c_int, most: c_int, ranks: *mut c_int) -> c_int;
    fn PMPI_Dist_graph_neighbors_count(
        comm: *mut Communicator,
        sources: *mut c_int,
        destinations: *mut c_int,
        weighted: *mut c_int,
    ) -> c_int;
    fn PMPI_Dist_graph_neighbors(
        comm: *mut Communicator,
        most_sources: c_int,
        sources: *mut c_int,
        source_weights: *mut c_int,
        most_destinations: c_int,
        destinations: *mut c_int,
        destination_weights: *mut c_int,
    ) -> c_int;
}

/// The ranks of a process's neighbours, in the order of the buffers (MPI-3.1, 7.6).
fn neighbours(comm: *mut Communicator, side: Side) -> Option<Vec<c_int>> {
    let good = |error: c_int| (error == SUCCESS).then_some(());
    let mut topology = 0;
    // SAFETY: a live communicator and places of our own, long enough for what Open MPI has counted just before.
    unsafe {
        good(PMPI_Topo_test(comm, &mut topology))?;
        match topology as u32 {
            mpi::MPI_CART => {
                let mut dimensions = 0;
                good(PMPI_Cartdim_get(comm, &mut dimensions))?;
                let mut ranks = Vec::new();
                for direction in 0..dimensions {
                    let (mut source, mut destination) = (0, 0);
                    good(PMPI_Cart_shift(comm, direction, 1, &mut source, &mut destination))?;
                    ranks.extend([source, destination]);
                }
                Some(ranks)
            }
            mpi::MPI_GRAPH => {
                let (rank, mut count) = (mpi::redmpi_shim_comm_rank(comm), 0);
                good(PMPI_Graph_neighbors_count(comm, rank, &mut count))?;
                let mut ranks = vec![0; number(count)];
                good(PMPI_Graph_neighbors(comm, rank, count, ranks.as_mut_ptr()))?;
                Some(ranks)
            }
            mpi::MPI_DIST_GRAPH => {
                let (mut sources, mut destinations, mut weighted) = (0, 0, 0);
                good(PMPI_Dist_graph_neighbors_count(comm, &mut sources, &mut destinations, &mut weighted))?;
                let mut lists = [vec![0; number(sources)], vec![0; number(destinations)]];
                let mut weights = [vec![0; number(sources)], vec![0; number(destinations)]];
                good(PMPI_Dist_graph_neighbors(
                    comm,
                    sources,
                    lists[0].as_mut_ptr(),
                    weights[0].as_mut_ptr(),
                    destinations,
                    lists[1].as_mut_ptr(),
                    weights[1].as_mut_ptr(),
                ))?;
                let [sources, destinations] = lists;
                Some(if side == Got { sources } else { destinations })
            }
            _ => None,
        }
    }
}
