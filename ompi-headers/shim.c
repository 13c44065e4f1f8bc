/* The C shim: see shim.h. */
#include "shim.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "mpi.h"
#include "ompi/attribute/attribute.h"
#include "ompi/errhandler/errhandler.h"
#include "ompi/proc/proc.h"
#include "ompi/runtime/mpiruntime.h"
#include "opal/class/opal_list.h"
#include "opal/class/opal_pointer_array.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/datatype/opal_datatype_internal.h"
#if OMPI_MAJOR_VERSION >= 5
#include "opal/mca/pmix/pmix-internal.h"
#else
#include "opal/mca/pmix/pmix.h"
#endif
#include "opal/util/bit_ops.h"
#include "opal/mca/base/base.h"
#include "opal/util/proc.h"

/* ---- requests ---- */

static void request_construct(redmpi_request_t *request)
{
    request->state = NULL;
    request->role = 0;
}

OBJ_CLASS_INSTANCE(redmpi_request_t, ompi_request_t, request_construct, NULL);

redmpi_request_t *redmpi_shim_request_new(void)
{
    return OBJ_NEW(redmpi_request_t);
}

void redmpi_shim_request_init(redmpi_request_t *request, int persistent)
{
    OMPI_REQUEST_INIT(&request->super, persistent != 0);
    memset(request->of_collectives, 0, sizeof request->of_collectives);
    request->super.req_type = OMPI_REQUEST_PML;
    request->super.req_status.MPI_SOURCE = MPI_ANY_SOURCE;
    request->super.req_status.MPI_TAG = MPI_ANY_TAG;
    request->super.req_status.MPI_ERROR = MPI_SUCCESS;
    request->super.req_status._ucount = 0;
    request->super.req_status._cancelled = 0;
}

void redmpi_shim_request_fini(redmpi_request_t *request)
{
    OMPI_REQUEST_FINI(&request->super);
}

void redmpi_shim_request_release(redmpi_request_t *request)
{
    OBJ_RELEASE(request);
}

void redmpi_shim_request_complete(ompi_request_t *request)
{
    ompi_request_complete(request, true);
}

int redmpi_shim_request_is_complete(const ompi_request_t *request)
{
    return REQUEST_COMPLETE(request);
}

int redmpi_shim_request_free(ompi_request_t **request)
{
    return ompi_request_free(request);
}

void redmpi_shim_request_wait(ompi_request_t *request)
{
    ompi_request_wait_completion(request);
}

int redmpi_shim_request_callback(ompi_request_t *request, ompi_request_complete_fn_t callback, void *data)
{
    /* Set by hand: ompi_request_set_callback would call back from here, in the caller's stack. */
    request->req_complete_cb_data = data;
    request->req_complete_cb = callback;
    if (REQUEST_COMPLETE(request)) {
        request->req_complete_cb = NULL;
        return 1;
    }
    return 0;
}

int redmpi_shim_request_cancel(ompi_request_t *request)
{
    return ompi_request_cancel(request);
}

ompi_request_t *redmpi_shim_request_empty(void)
{
    return &ompi_request_empty;
}

ompi_request_t *redmpi_shim_request_null(void)
{
    return MPI_REQUEST_NULL;
}

/* ---- datatypes ---- */

size_t redmpi_shim_message_size(const ompi_datatype_t *datatype, size_t count)
{
    size_t size = 0;
    opal_datatype_type_size(&datatype->super, &size);
    return size * count;
}

void *redmpi_shim_contiguous(const ompi_datatype_t *datatype, size_t count, const void *buffer)
{
    if (!opal_datatype_is_contiguous_memory_layout(&datatype->super, (int32_t) (count > 1 ? 2 : count))) {
        return NULL;
    }
    return (char *) buffer + datatype->super.true_lb;
}

int redmpi_shim_walk(ompi_datatype_t *datatype, size_t count, const void *buffer,
                     redmpi_visit_fn_t visit, void *context)
{
    opal_convertor_t convertor;
    int done = 0, stop = 0;

    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_send(ompi_mpi_local_convertor, &datatype->super, count, buffer,
                                             0, &convertor);
    while (!done && !stop) {
        struct iovec pieces[32];
        uint32_t number = 32;
        size_t length = SIZE_MAX;
        done = opal_convertor_raw(&convertor, pieces, &number, &length);
        for (uint32_t i = 0; i < number && !stop; ++i) {
            if (pieces[i].iov_len > 0) {
                stop = visit(context, pieces[i].iov_base, pieces[i].iov_len);
            }
        }
        if (!done && 0 == number) {
            stop = -1;
        }
    }
    OBJ_DESTRUCT(&convertor);
    return stop;
}

#if LDBL_MANT_DIG == 64 && __SIZEOF_LONG_DOUBLE__ == 16
struct runs {
    redmpi_run_t *runs;
    size_t count, most;
};

static void add_run(struct runs *runs, size_t bytes, int padded)
{
    if (0 == bytes) {
        return;
    }
    if (runs->count > 0 && runs->count <= runs->most && runs->runs[runs->count - 1].padded == padded) {
        runs->runs[runs->count - 1].bytes += bytes;
        return;
    }
    if (runs->count < runs->most) {
        runs->runs[runs->count] = (redmpi_run_t){bytes, padded};
    }
    runs->count++;
}

/* The items of a type's description from `item` to `end`, as often as the loops among them say. */
static void add_items(struct runs *runs, const dt_elem_desc_t *item, const dt_elem_desc_t *end)
{
    while (item < end) {
        uint16_t type = item->elem.common.type;
        if (OPAL_DATATYPE_LOOP == type) {
            const dt_elem_desc_t *close = item + item->loop.items;
            for (uint32_t i = 0; i < item->loop.loops; i++) {
                add_items(runs, item + 1, close);
            }
            item = close + 1;
            continue;
        }
        if (OPAL_DATATYPE_END_LOOP == type) {
            return;
        }
        add_run(runs, (size_t) item->elem.count * item->elem.blocklen * opal_datatype_basicDatatypes[type]->size,
                OPAL_DATATYPE_FLOAT16 == type || OPAL_DATATYPE_LONG_DOUBLE_COMPLEX == type);
        item++;
    }
}

/* Whether a type has Fortran's REAL*16 in it, in which every byte is data; Open MPI describes it like long double. */
static int has_real16(MPI_Datatype datatype)
{
    int integers, addresses, types, combiner, found = 0;
    if (MPI_SUCCESS != PMPI_Type_get_envelope(datatype, &integers, &addresses, &types, &combiner)) {
        return 1;
    }
    if (MPI_COMBINER_NAMED == combiner) {
        return MPI_REAL16 == datatype || MPI_COMPLEX32 == datatype;
    }
    if (MPI_COMBINER_F90_REAL == combiner || MPI_COMBINER_F90_COMPLEX == combiner) {
        return 1;
    }
    int *i = malloc(sizeof *i * (size_t) (integers + 1));
    MPI_Aint *a = malloc(sizeof *a * (size_t) (addresses + 1));
    MPI_Datatype *t = malloc(sizeof *t * (size_t) (types + 1));
    if (NULL == i || NULL == a || NULL == t ||
        MPI_SUCCESS != PMPI_Type_get_contents(datatype, integers, addresses, types, i, a, t)) {
        found = 1;
        types = 0;
    }
    for (int k = 0; k < types; k++) {
        int named = 0, n1, n2, n3;
        found = found || has_real16(t[k]);
        PMPI_Type_get_envelope(t[k], &n1, &n2, &n3, &named);
        if (MPI_COMBINER_NAMED != named && MPI_COMBINER_F90_REAL != named && MPI_COMBINER_F90_COMPLEX != named &&
            MPI_COMBINER_F90_INTEGER != named) {
            PMPI_Type_free(&t[k]);
        }
    }
    free(i);
    free(a);
    free(t);
    return found;
}

size_t redmpi_shim_padding(ompi_datatype_t *datatype, redmpi_run_t *runs, size_t most)
{
    const uint32_t padded = (1u << OPAL_DATATYPE_FLOAT16) | (1u << OPAL_DATATYPE_LONG_DOUBLE_COMPLEX);
    if (0 == (datatype->super.bdt_used & padded)) {
        return 0;
    }
    if (has_real16(datatype)) {
        return 0;
    }
    struct runs all = {runs, 0, most};
    if (opal_datatype_is_predefined(&datatype->super) && 1 == datatype->super.desc.used) {
        add_run(&all, datatype->super.size, 1);
    } else {
        add_items(&all, datatype->super.desc.desc, datatype->super.desc.desc + datatype->super.desc.used);
    }
    return all.count;
}
#else
size_t redmpi_shim_padding(ompi_datatype_t *datatype, redmpi_run_t *runs, size_t most)
{
    (void) datatype;
    (void) runs;
    (void) most;
    return 0;
}
#endif

int redmpi_shim_is_in_place(const void *buffer)
{
    return MPI_IN_PLACE == buffer;
}

ptrdiff_t redmpi_shim_extent(const ompi_datatype_t *datatype)
{
    ptrdiff_t extent = 0;
    ompi_datatype_type_extent(datatype, &extent);
    return extent;
}

void redmpi_shim_datatype_retain(ompi_datatype_t *datatype)
{
    if (!ompi_datatype_is_predefined(datatype)) {
        OBJ_RETAIN(datatype);
    }
}

void redmpi_shim_datatype_release(ompi_datatype_t *datatype)
{
    if (!ompi_datatype_is_predefined(datatype)) {
        OBJ_RELEASE(datatype);
    }
}

ompi_datatype_t *redmpi_shim_byte(void)
{
    return &ompi_mpi_byte.dt;
}

int redmpi_shim_is_int(const ompi_datatype_t *datatype)
{
    return MPI_INT == datatype;
}

ompi_message_t *redmpi_shim_message_null(void)
{
    return MPI_MESSAGE_NULL;
}

/* ---- collectives ---- */

static void coll_module_construct(redmpi_coll_module_t *module)
{
    memset(&module->host, 0, sizeof module->host);
}

OBJ_CLASS_INSTANCE(redmpi_coll_module_t, mca_coll_base_module_t, coll_module_construct, NULL);

redmpi_coll_module_t *redmpi_shim_coll_module_new(void)
{
    return OBJ_NEW(redmpi_coll_module_t);
}

mca_coll_base_comm_coll_t *redmpi_shim_comm_coll(const ompi_communicator_t *comm)
{
    return comm->c_coll;
}

void redmpi_shim_module_retain(mca_coll_base_module_t *module)
{
    OBJ_RETAIN(module);
}

void redmpi_shim_module_release(mca_coll_base_module_t *module)
{
    OBJ_RELEASE(module);
}

/* ---- one-sided communication, errors, variables ---- */

int redmpi_shim_exact(struct ompi_op_t *op, ompi_datatype_t *datatype)
{
    const MPI_Op known[] = {MPI_MAX, MPI_MIN, MPI_SUM, MPI_PROD, MPI_LAND, MPI_BAND, MPI_LOR, MPI_BOR, MPI_LXOR, MPI_BXOR};
    ompi_datatype_t *single = ompi_datatype_get_single_predefined_type_from_args(datatype);

    if (NULL == single || !(single->super.flags & OMPI_DATATYPE_FLAG_DATA_INT)) {
        return 0;
    }
    for (int i = 0; i < (int) (sizeof known / sizeof known[0]); ++i) {
        if (known[i] == op) {
            return (i + 1) * OMPI_DATATYPE_MAX_PREDEFINED + single->id;
        }
    }
    return 0;
}

int redmpi_shim_is_no_op(const struct ompi_op_t *op)
{
    return MPI_NO_OP == op;
}

int redmpi_shim_comm_error(ompi_communicator_t *comm, int code, const char *text)
{
    if (ompi_comm_invalid(comm)) {
        comm = &ompi_mpi_comm_world.comm;
    }
    return ompi_errhandler_invoke(comm->error_handler, comm, (int) comm->errhandler_type, code, text);
}

void *redmpi_shim_variable(const char *framework, const char *component, const char *name)
{
    void *storage = NULL;
    int index = mca_base_var_find("ompi", framework, component, name);

    if (index < 0 || OPAL_SUCCESS != mca_base_var_get_value(index, &storage, NULL, NULL)) {
        return NULL;
    }
    return storage;
}

int redmpi_shim_thread_multiple(void)
{
    return ompi_mpi_thread_multiple;
}

/* ---- communicators and groups ---- */

int redmpi_shim_comm_rank(const ompi_communicator_t *comm)
{
    return comm->c_my_rank;
}

int redmpi_shim_comm_size(const ompi_communicator_t *comm)
{
    return comm->c_local_group->grp_proc_count;
}

int redmpi_shim_comm_remote_size(const ompi_communicator_t *comm)
{
    return comm->c_remote_group->grp_proc_count;
}

int redmpi_shim_comm_is_inter(const ompi_communicator_t *comm)
{
    return OMPI_COMM_IS_INTER(comm) ? 1 : 0;
}

uint32_t redmpi_shim_comm_context(const ompi_communicator_t *comm)
{
#if OMPI_MAJOR_VERSION >= 5
    return (uint32_t) comm->c_index;
#else
    return comm->c_contextid;
#endif
}

const char *redmpi_shim_comm_name(const ompi_communicator_t *comm)
{
    return comm->c_name;
}

void redmpi_shim_comm_retain(ompi_communicator_t *comm)
{
    OBJ_RETAIN(comm);
}

void redmpi_shim_comm_release(ompi_communicator_t *comm)
{
    OBJ_RELEASE(comm);
}

int64_t redmpi_shim_comm_member(const ompi_communicator_t *comm, int remote, int rank)
{
    ompi_group_t *group = remote ? comm->c_remote_group : comm->c_local_group;
    opal_process_name_t name, mine = ompi_proc_local()->super.proc_name;

    if (rank < 0 || rank >= group->grp_proc_count) {
        return -1;
    }
    name = ompi_group_get_proc_name(group, rank);
    return name.jobid == mine.jobid ? (int64_t) name.vpid : -1;
}

ompi_communicator_t *redmpi_shim_world(void)
{
    return &ompi_mpi_comm_world.comm;
}

ompi_communicator_t *redmpi_shim_self(void)
{
    return &ompi_mpi_comm_self.comm;
}

ompi_communicator_t *redmpi_shim_comm_null(void)
{
    return MPI_COMM_NULL;
}

ompi_communicator_t *redmpi_shim_native_comm(void)
{
    ompi_communicator_t *world = &ompi_mpi_comm_world.comm;
    ompi_communicator_t *comm = OBJ_NEW(ompi_communicator_t);
    static const char name[] = "redmpi native world";
    int slot;

    if (NULL == comm) {
        return NULL;
    }
    comm->super.s_info = OBJ_NEW(opal_info_t);
    comm->c_my_rank = world->c_my_rank;
    comm->c_cube_dim = world->c_cube_dim;
    comm->c_local_group = world->c_local_group;
    comm->c_remote_group = world->c_local_group;
    OBJ_RETAIN(comm->c_local_group);
    OBJ_RETAIN(comm->c_remote_group);
    comm->error_handler = world->error_handler;
    OBJ_RETAIN(comm->error_handler);
    memcpy(comm->c_name, name, sizeof name);
    comm->c_flags |= OMPI_COMM_NAMEISSET;
    /* 0 to 2 are predefined. The first free one is the same in every process: nothing was made yet. */
    slot = 3;
    while (!opal_pointer_array_test_and_set_item(&ompi_mpi_communicators, slot, comm)) {
        ++slot;
    }
#if OMPI_MAJOR_VERSION >= 5
    comm->c_index = slot;
    comm->c_contextid = (ompi_comm_extended_cid_t){.cid_base = 0, .cid_sub.u64 = slot};
    comm->c_contextidb.block_cid = comm->c_contextid;
    comm->c_flags |= OMPI_COMM_GLOBAL_INDEX;
#else
    comm->c_contextid = (uint32_t) slot;
#endif
    OMPI_COMM_SET_PML_ADDED(comm);
    return comm;
}

void redmpi_shim_native_comm_free(ompi_communicator_t *comm)
{
    OBJ_RELEASE(comm);
}

int redmpi_shim_world_split(const uint32_t *members, int size, int rank)
{
    ompi_communicator_t *world = &ompi_mpi_comm_world.comm;
    ompi_group_t *native = world->c_local_group;
#if OMPI_MAJOR_VERSION >= 5
    ompi_group_t *sphere = ompi_group_allocate(NULL, size);
#else
    ompi_group_t *sphere = ompi_group_allocate(size);
#endif
    if (NULL == sphere) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    for (int i = 0; i < size; ++i) {
        ompi_proc_t *proc = ompi_group_get_proc_ptr_raw(native, (int) members[i]);
        sphere->grp_proc_pointers[i] = proc;
        if (!ompi_proc_is_sentinel(proc)) {
            OBJ_RETAIN(proc);
        }
    }
    sphere->grp_my_rank = rank;
    OMPI_GROUP_SET_INTRINSIC(sphere);
    world->c_local_group = sphere;
    world->c_remote_group = sphere;
    OBJ_RETAIN(sphere);
    world->c_my_rank = rank;
    world->c_cube_dim = opal_cube_dim(size);
    /* The world's two references on its old group now keep the native group for the spheres' sake:
       other communicators (MPI_COMM_SELF) borrow its processes. */
    return OMPI_SUCCESS;
}

/* ---- the end ---- */

static int (*finalize_callback)(void);

static int finalize_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    (void) comm;
    (void) key;
    (void) value;
    (void) extra;
    return finalize_callback();
}

/* MPI_Comm_dup(MPI_COMM_SELF) must not copy the attribute. */
static int finalize_copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag, MPI_Comm copy)
{
    (void) comm;
    (void) key;
    (void) extra;
    (void) in;
    (void) out;
    (void) copy;
    *flag = 0;
    return MPI_SUCCESS;
}

int redmpi_shim_at_finalize(int (*callback)(void))
{
    ompi_attribute_fn_ptr_union_t copy, drop;
    int key = MPI_KEYVAL_INVALID, rc;

    finalize_callback = callback;
    copy.attr_communicator_copy_fn = finalize_copy;
    drop.attr_communicator_delete_fn = finalize_delete;
    rc = ompi_attr_create_keyval(COMM_ATTR, copy, drop, &key, NULL, 0, NULL);
    if (OMPI_SUCCESS != rc) {
        return rc;
    }
    return ompi_attr_set_aint(COMM_ATTR, &ompi_mpi_comm_self.comm, &ompi_mpi_comm_self.comm.c_keyhash, key, 0,
                              false);
}

/* ---- the host ---- */

#define STRING_(x) #x
#define STRING(x) STRING_(x)

const char *redmpi_shim_built_version(void)
{
    return STRING(OMPI_MAJOR_VERSION) "." STRING(OMPI_MINOR_VERSION) "." STRING(OMPI_RELEASE_VERSION);
}

const char *redmpi_shim_host_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    if ('\0' == text[0]) {
        PMPI_Get_library_version(text, &length);
    }
    return text;
}

const char *redmpi_shim_hostname(void)
{
    return ompi_process_info.nodename;
}

char *redmpi_shim_host_of(uint32_t native)
{
    opal_process_name_t name = {.jobid = OMPI_PROC_MY_NAME->jobid, .vpid = native};
    char *host = NULL;
    int rc;

#if OMPI_MAJOR_VERSION >= 5
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, PMIX_HOSTNAME, &name, &host, PMIX_STRING);
#else
    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, OPAL_PMIX_HOSTNAME, &name, &host, OPAL_STRING);
#endif
    return OPAL_SUCCESS == rc ? host : NULL;
}

int redmpi_shim_one_node(void)
{
    return (uint64_t) ompi_process_info.num_local_peers + 1 >= (uint64_t) ompi_process_info.num_procs;
}

uint32_t redmpi_shim_native_rank(void)
{
    return (uint32_t) ompi_proc_local()->super.proc_name.vpid;
}

uint32_t redmpi_shim_native_size(void)
{
    return (uint32_t) ompi_process_info.num_procs;
}

int redmpi_shim_request_is_ours(const ompi_request_t *request)
{
    return OBJ_CLASS(redmpi_request_t) == ((const opal_object_t *) request)->obj_class;
}

void *redmpi_shim_request_data(const ompi_request_t *request)
{
    return request->req_complete_cb_data;
}

int redmpi_shim_framework_load(mca_base_framework_t *framework)
{
    mca_base_component_list_item_t *item, *next;
    opal_list_item_t *last = opal_list_get_last(&framework->framework_components);
    int known = 1, rc = mca_base_component_find(NULL, framework, false, true);

    if (OPAL_SUCCESS != rc) {
        return rc;
    }
    /* The framework is walking its list to register components; it will not see what was added now. */
    OPAL_LIST_FOREACH_SAFE(item, next, &framework->framework_components, mca_base_component_list_item_t) {
        const mca_base_component_t *component = item->cli_component;
        if (known) {
            known = &item->super != last;
            continue;
        }
        if (NULL != component->mca_register_component_params
            && OPAL_SUCCESS != component->mca_register_component_params()) {
            opal_list_remove_item(&framework->framework_components, &item->super);
            OBJ_RELEASE(item);
        }
    }
    return OPAL_SUCCESS;
}

int redmpi_shim_host_is_debug(void)
{
    /* In a debug build every object begins with this number. */
    return 0xdeafbeeddeafbeedULL == *(const uint64_t *) &ompi_mpi_byte;
}

int redmpi_shim_built_debug(void)
{
    return OPAL_ENABLE_DEBUG;
}

double redmpi_shim_wtime(void)
{
    return PMPI_Wtime();
}

double redmpi_shim_wtick(void)
{
    return PMPI_Wtick();
}
