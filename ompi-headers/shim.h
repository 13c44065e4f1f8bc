/*
 * What Rust cannot reach in Open MPI: macros, static inline functions, and the object system.
 * Nothing here decides anything; each function is one expression of Open MPI's, given a name.
 */
#ifndef REDMPI_SHIM_H
#define REDMPI_SHIM_H

#include "ompi_config.h"
#include "opal/mca/base/mca_base_framework.h"
#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/group/group.h"
#include "ompi/mca/coll/coll.h"
#include "ompi/message/message.h"
#include "ompi/request/request.h"

/* A request of ours, as the application holds it: Open MPI's, and what stands behind it. */
typedef struct redmpi_request_t {
    ompi_request_t super;
    /* MPI_I<collective> takes the request that it gets for an ompi_coll_base_nbc_request_t, in which a callback and four
     * pointers at most follow here (its header cannot be included: one that it includes is not installed). */
    void *of_collectives[16];
    void *state;
    int role;
} redmpi_request_t;

/* Frameworks: loads and registers the components that the present selection allows. */
int redmpi_shim_framework_load(mca_base_framework_t *framework);
/* Whether the objects of the loaded library have a debug build's layout. */
int redmpi_shim_host_is_debug(void);
int redmpi_shim_built_debug(void);

/* Requests. */
redmpi_request_t *redmpi_shim_request_new(void);
void redmpi_shim_request_init(redmpi_request_t *request, int persistent);
void redmpi_shim_request_fini(redmpi_request_t *request);
void redmpi_shim_request_release(redmpi_request_t *request);
void redmpi_shim_request_complete(ompi_request_t *request);
int redmpi_shim_request_is_complete(const ompi_request_t *request);
int redmpi_shim_request_free(ompi_request_t **request);
void redmpi_shim_request_wait(ompi_request_t *request);
/* Non-zero: the request had completed before, and the callback will not be called. */
int redmpi_shim_request_callback(ompi_request_t *request, ompi_request_complete_fn_t callback, void *data);
int redmpi_shim_request_cancel(ompi_request_t *request);
ompi_request_t *redmpi_shim_request_empty(void);
ompi_request_t *redmpi_shim_request_null(void);

/* Datatypes: the message's bytes in memory, in the order in which they travel. */
typedef int (*redmpi_visit_fn_t)(void *context, void *address, size_t length);
size_t redmpi_shim_message_size(const ompi_datatype_t *datatype, size_t count);
/* Address of the only block of bytes, or NULL where the message is not contiguous in memory. */
void *redmpi_shim_contiguous(const ompi_datatype_t *datatype, size_t count, const void *buffer);
int redmpi_shim_walk(ompi_datatype_t *datatype, size_t count, const void *buffer,
                     redmpi_visit_fn_t visit, void *context);
/* Bytes of a message that are not data: long double has 10 bytes in 16 on x86, and the rest is whatever was there. An element's
 * bytes, in the order in which they travel, as runs of such numbers and of other data. The number of runs, of which at most
 * `most` are written; 0 where every byte is data. */
typedef struct redmpi_run_t {
    size_t bytes;
    int padded;
} redmpi_run_t;
size_t redmpi_shim_padding(ompi_datatype_t *datatype, redmpi_run_t *runs, size_t most);
/* Whether this is MPI_IN_PLACE. */
int redmpi_shim_is_in_place(const void *buffer);
/* Bytes from one element to the next. */
ptrdiff_t redmpi_shim_extent(const ompi_datatype_t *datatype);
void redmpi_shim_datatype_retain(ompi_datatype_t *datatype);
void redmpi_shim_datatype_release(ompi_datatype_t *datatype);
ompi_datatype_t *redmpi_shim_byte(void);
int redmpi_shim_is_int(const ompi_datatype_t *datatype);

/* MPI_MESSAGE_NULL. */
ompi_message_t *redmpi_shim_message_null(void);

/* A coll module of ours: what the host's modules provided for the communicator before ours was enabled. */
typedef struct redmpi_coll_module_t {
    mca_coll_base_module_t super;
    mca_coll_base_comm_coll_t host;
} redmpi_coll_module_t;
redmpi_coll_module_t *redmpi_shim_coll_module_new(void);
mca_coll_base_comm_coll_t *redmpi_shim_comm_coll(const ompi_communicator_t *comm);
void redmpi_shim_module_retain(mca_coll_base_module_t *module);
void redmpi_shim_module_release(mca_coll_base_module_t *module);

/* One-sided communication. */
/* Not 0 where the result of this operation on this type does not depend on the order: equal numbers, equal operations. */
int redmpi_shim_exact(struct ompi_op_t *op, ompi_datatype_t *datatype);
int redmpi_shim_is_no_op(const struct ompi_op_t *op);
/* Tells the communicator's error handler; what the call is to return. Without one, MPI_COMM_WORLD's. */
int redmpi_shim_comm_error(ompi_communicator_t *comm, int code, const char *text);
/* Where a variable of Open MPI's is stored; null where there is none. */
void *redmpi_shim_variable(const char *framework, const char *component, const char *name);
int redmpi_shim_thread_multiple(void);

/* Communicators and groups. */
int redmpi_shim_comm_rank(const ompi_communicator_t *comm);
int redmpi_shim_comm_size(const ompi_communicator_t *comm);
int redmpi_shim_comm_remote_size(const ompi_communicator_t *comm);
int redmpi_shim_comm_is_inter(const ompi_communicator_t *comm);
uint32_t redmpi_shim_comm_context(const ompi_communicator_t *comm);
const char *redmpi_shim_comm_name(const ompi_communicator_t *comm);
void redmpi_shim_comm_retain(ompi_communicator_t *comm);
void redmpi_shim_comm_release(ompi_communicator_t *comm);
/* Native rank of a member of the local (remote = 0) or remote group; -1 where it is of another job. */
int64_t redmpi_shim_comm_member(const ompi_communicator_t *comm, int remote, int rank);
ompi_communicator_t *redmpi_shim_world(void);
ompi_communicator_t *redmpi_shim_self(void);
ompi_communicator_t *redmpi_shim_comm_null(void);
/* The native world: a communicator of our own over MPI_COMM_WORLD's present group. */
ompi_communicator_t *redmpi_shim_native_comm(void);
void redmpi_shim_native_comm_free(ompi_communicator_t *comm);
/* Puts a sphere's processes into MPI_COMM_WORLD: members[i] is the native rank of virtual rank i. */
int redmpi_shim_world_split(const uint32_t *members, int size, int rank);

/* At MPI_Finalize, before anything of MPI is gone (a delete callback on MPI_COMM_SELF, MPI-3.1 8.7.1). */
int redmpi_shim_at_finalize(int (*callback)(void));

/* What the host's layout depends on; compared with what we were built for. */
const char *redmpi_shim_host_version(void);
const char *redmpi_shim_built_version(void);
const char *redmpi_shim_hostname(void);
/* The name of a native rank's host, to be freed; null where Open MPI does not know it. */
char *redmpi_shim_host_of(uint32_t native);
/* Whether all processes of the job are on this node. */
int redmpi_shim_one_node(void);
uint32_t redmpi_shim_native_rank(void);
uint32_t redmpi_shim_native_size(void);
/* The address in a request at which its callback finds what was registered. */
/* Whether a request is of our own class. */
int redmpi_shim_request_is_ours(const ompi_request_t *request);
void *redmpi_shim_request_data(const ompi_request_t *request);
double redmpi_shim_wtime(void);
double redmpi_shim_wtick(void);
#endif
