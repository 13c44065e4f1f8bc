/* Communicators and what hangs on them, each checked against what it has to be and used afterwards: groups and
 * comparisons, attributes with their callbacks, info hints, error handlers, names, topologies with neighbourhood
 * collectives, intercommunicators, several duplicates under way at a time; and LOOPS communicators made and freed, which
 * must not take memory for good.  groups [LOOPS [idups]] */
#define _GNU_SOURCE
#include "check.h"
#include <unistd.h>

static int me_on(MPI_Comm comm)
{
    int me;
    MPI_Comm_rank(comm, &me);
    return me;
}

static int size_of_(MPI_Comm comm)
{
    int all;
    MPI_Comm_size(comm, &all);
    return all;
}

/* Messages and a collective on any intracommunicator. */
static void use(MPI_Comm comm, int number)
{
    int me = me_on(comm), all = size_of_(comm), next = (me + 1) % all, previous = (me + all - 1) % all;
    unsigned char out[500], in[500];
    MPI_Status status;
    fill(out, sizeof out, seed_of(me, next, number));
    MPI_Sendrecv(out, sizeof out, MPI_BYTE, next, 5, in, sizeof in, MPI_BYTE, number % 2 ? MPI_ANY_SOURCE : previous, 5, comm,
                 &status);
    EQUAL(status.MPI_SOURCE, previous);
    CHECK(in, sizeof in, seed_of(previous, me, number));
    long mine = me + number, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
    EQUAL(sum, (long)all * number + (long)all * (all - 1) / 2);
    mix_number(sum);
}

/* ---- groups ---- */

static void groups(void)
{
    MPI_Group world, even, odd, joined, rest, both, reversed, ranged;
    MPI_Comm comm, dup;
    int ranks[size], there[size], count = 0, result, got;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_size(world, &got);
    EQUAL(got, size);
    MPI_Group_rank(world, &got);
    EQUAL(got, rank);
    for (int i = 0; i < size; i += 2) ranks[count++] = i;
    MPI_Group_incl(world, count, ranks, &even);
    MPI_Group_excl(world, count, ranks, &odd);
    MPI_Group_size(odd, &got);
    EQUAL(got, size / 2);
    MPI_Group_rank(even, &got);
    EQUAL(got, rank % 2 ? MPI_UNDEFINED : rank / 2);
    MPI_Group_union(even, odd, &joined);
    MPI_Group_compare(joined, world, &result);
    EQUAL(result, size > 2 ? MPI_SIMILAR : MPI_IDENT);
    MPI_Group_intersection(even, odd, &both);
    REQUIRE(both == MPI_GROUP_EMPTY || (MPI_Group_size(both, &got), got == 0));
    MPI_Group_difference(world, even, &rest);
    MPI_Group_compare(rest, odd, &result);
    EQUAL(result, MPI_IDENT);
    int range[1][3] = {{size - 1, 0, -1}};
    MPI_Group_range_incl(world, 1, range, &reversed);
    MPI_Group_compare(reversed, world, &result);
    EQUAL(result, size > 1 ? MPI_SIMILAR : MPI_IDENT);
    for (int i = 0; i < size; i++) ranks[i] = i;
    MPI_Group_translate_ranks(world, size, ranks, reversed, there);
    for (int i = 0; i < size; i++) EQUAL(there[i], size - 1 - i);
    MPI_Group_translate_ranks(world, size, ranks, even, there);
    for (int i = 0; i < size; i++) EQUAL(there[i], i % 2 ? MPI_UNDEFINED : i / 2);
    range[0][0] = 0, range[0][1] = 0, range[0][2] = 1;
    MPI_Group_range_excl(world, 1, range, &ranged);
    MPI_Group_size(ranged, &got);
    EQUAL(got, size - 1);

    /* Communicators of these groups, and how they compare. */
    MPI_Comm_create(MPI_COMM_WORLD, reversed, &comm);
    EQUAL(me_on(comm), size - 1 - rank);
    use(comm, 1);
    MPI_Comm_compare(comm, MPI_COMM_WORLD, &result);
    EQUAL(result, size > 1 ? MPI_SIMILAR : MPI_CONGRUENT);
    MPI_Comm_dup(comm, &dup);
    MPI_Comm_compare(comm, dup, &result);
    EQUAL(result, MPI_CONGRUENT);
    MPI_Comm_compare(comm, comm, &result);
    EQUAL(result, MPI_IDENT);
    MPI_Comm_compare(MPI_COMM_SELF, MPI_COMM_WORLD, &result);
    EQUAL(result, size > 1 ? MPI_UNEQUAL : MPI_CONGRUENT);
    use(dup, 2);
    MPI_Comm_free(&comm);
    use(dup, 3);
    MPI_Comm_free(&dup);
    MPI_Comm_create(MPI_COMM_WORLD, ranged, &comm);
    REQUIRE((comm == MPI_COMM_NULL) == (rank == 0));
    if (comm != MPI_COMM_NULL) {
        use(comm, 4);
        MPI_Comm_free(&comm);
    }
    /* Two groups at once, each on its own, and with one tag; several times, so that ids are used again. */
    for (int i = 0; i < 8; i++) {
        MPI_Comm_create_group(MPI_COMM_WORLD, rank % 2 ? odd : even, 6, &comm);
        use(comm, 5 + i);
        MPI_Comm_free(&comm);
    }
    MPI_Group *all[] = {&world, &even, &odd, &joined, &rest, &reversed, &ranged};
    for (int i = 0; i < 7; i++) {
        if (*all[i] != MPI_GROUP_EMPTY && *all[i] != MPI_GROUP_NULL) MPI_Group_free(all[i]);
    }
    if (both != MPI_GROUP_EMPTY && both != MPI_GROUP_NULL) MPI_Group_free(&both);
}

/* ---- attributes ---- */

static int copies, deletions;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key;
    EQUAL(*(int *)extra, 4711);
    copies++;
    *(long *)out = (long)in + 1; /* each copy knows its generation */
    *flag = (long)in < 102;      /* and the third is not made */
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm, (void)key;
    EQUAL(*(int *)extra, 4711);
    REQUIRE((long)value >= 100 && (long)value <= 102);
    deletions++;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    static int extra = 4711;
    int key, flag, *bound, null_key;
    long value;
    MPI_Comm comms[4];
    MPI_Request request;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag);
    REQUIRE(flag && *bound >= 32767);
    MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, &extra);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &null_key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_set_attr(comms[0], key, (void *)100L);
    MPI_Comm_set_attr(comms[0], null_key, (void *)7L);
    MPI_Comm_dup(comms[0], &comms[1]);
    MPI_Comm_idup(comms[1], &comms[2], &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_dup(comms[2], &comms[3]);
    EQUAL(copies, 3);
    for (int i = 0; i < 4; i++) {
        MPI_Comm_get_attr(comms[i], key, &value, &flag);
        EQUAL(flag, i < 3);
        if (flag) EQUAL(value, 100 + i);
        MPI_Comm_get_attr(comms[i], null_key, &value, &flag);
        EQUAL(flag, i == 0);
        use(comms[i], 20 + i);
    }
    MPI_Comm_delete_attr(comms[1], key);
    EQUAL(deletions, 1);
    for (int i = 0; i < 4; i++) MPI_Comm_free(&comms[i]);
    EQUAL(deletions, 3);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free_keyval(&null_key);
    REQUIRE(key == MPI_KEYVAL_INVALID);
}

/* ---- info hints, names, error handlers ---- */

static int handled;

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    int class;
    MPI_Error_class(*code, &class);
    EQUAL(class, MPI_ERR_RANK);
    handled++;
}

static void properties(void)
{
    MPI_Comm comm, other;
    MPI_Info info, got;
    MPI_Errhandler own, found;
    char name[MPI_MAX_OBJECT_NAME];
    int length, word = 1;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "false");
    MPI_Info_set(info, "of_our_own", "kept or not");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm);
    use(comm, 30);
    MPI_Comm_get_info(comm, &got);
    REQUIRE(got != MPI_INFO_NULL);
    MPI_Info_free(&got);
    MPI_Comm_set_info(comm, info);
    MPI_Info_free(&info);
    MPI_Comm_set_name(comm, "one of mine");
    MPI_Comm_get_name(comm, name, &length);
    REQUIRE(length == 11 && strcmp(name, "one of mine") == 0);
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    REQUIRE(strcmp(name, "MPI_COMM_WORLD") == 0);

    MPI_Comm_get_errhandler(comm, &found);
    REQUIRE(found == MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&found);
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(comm, own);
    MPI_Errhandler_free(&own);
    REQUIRE(MPI_Send(&word, 1, MPI_INT, size + 5, 1, comm) != MPI_SUCCESS); /* no such rank in the world it sees */
    EQUAL(handled, 1);
    MPI_Comm_dup(comm, &other); /* has it too */
    REQUIRE(MPI_Recv(&word, 1, MPI_INT, size, 1, other, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    EQUAL(handled, 2);
    MPI_Comm_call_errhandler(other, MPI_ERR_RANK);
    EQUAL(handled, 3);
    MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
    int class, code = MPI_Send(&word, 1, MPI_INT, 0, -77, other);
    MPI_Error_class(code, &class);
    EQUAL(class, MPI_ERR_TAG);
    EQUAL(handled, 3);
    use(comm, 31);
    use(other, 32); /* after an error it goes on */
    MPI_Comm_free(&comm);
    MPI_Comm_free(&other);
}

/* ---- topologies ---- */

/* Every neighbourhood collective, with slots for `in` sources and `out` targets, which may be MPI_PROC_NULL. */
static void neighbours(MPI_Comm comm, int in, const int *sources, int out, const int *targets, int number)
{
    int me = me_on(comm), most = (in > out ? in : out) + 1, counts[most], places[most], bytes[most];
    MPI_Aint displacements[most];
    long mine[2] = {me * 10L + number, me}, got[2 * most], each[2 * most];
    MPI_Datatype types[most];
    MPI_Request request;
    for (int blocking = 0; blocking < 2; blocking++) {
#define CALL(Name, name, ...)                                                                                   \
    do {                                                                                                        \
        for (int k = 0; k < 2 * most; k++) got[k] = -1;                                                         \
        if (blocking) {                                                                                         \
            MPI_##Name(__VA_ARGS__, comm);                                                                      \
        } else {                                                                                                \
            MPI_I##name(__VA_ARGS__, comm, &request);                                                           \
            MPI_Wait(&request, MPI_STATUS_IGNORE);                                                              \
        }                                                                                                       \
    } while (0)
        for (int k = 0; k < most; k++) {
            counts[k] = 2, places[k] = 2 * k, bytes[k] = 2, displacements[k] = 16 * k, types[k] = MPI_LONG;
        }
        for (int k = 0; k < out; k++) each[2 * k] = me * 1000L + targets[k], each[2 * k + 1] = number;
        CALL(Neighbor_allgather, neighbor_allgather, mine, 2, MPI_LONG, got, 2, MPI_LONG);
        for (int k = 0; k < in; k++) {
            EQUAL(got[2 * k], sources[k] == MPI_PROC_NULL ? -1 : sources[k] * 10L + number);
        }
        CALL(Neighbor_allgatherv, neighbor_allgatherv, mine, 2, MPI_LONG, got, counts, places, MPI_LONG);
        for (int k = 0; k < in; k++) EQUAL(got[2 * k + 1], sources[k] == MPI_PROC_NULL ? -1 : sources[k]);
        CALL(Neighbor_alltoall, neighbor_alltoall, each, 2, MPI_LONG, got, 2, MPI_LONG);
        for (int k = 0; k < in; k++) EQUAL(got[2 * k], sources[k] == MPI_PROC_NULL ? -1 : sources[k] * 1000L + me);
        CALL(Neighbor_alltoallv, neighbor_alltoallv, each, counts, places, MPI_LONG, got, counts, places, MPI_LONG);
        for (int k = 0; k < in; k++) EQUAL(got[2 * k + 1], sources[k] == MPI_PROC_NULL ? -1 : number);
        CALL(Neighbor_alltoallw, neighbor_alltoallw, each, bytes, displacements, types, got, bytes, displacements, types);
        for (int k = 0; k < in; k++) EQUAL(got[2 * k], sources[k] == MPI_PROC_NULL ? -1 : sources[k] * 1000L + me);
#undef CALL
    }
    mix_number(got[0]);
}

static void topologies(void)
{
    MPI_Comm cart, sub, graph, adjacent, general;
    int dims[2] = {0, 0}, periods[2] = {0, 1}, kind, coordinates[2], found, keep[2] = {0, 1}, sources[4], count;
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &cart);
    MPI_Topo_test(cart, &kind);
    EQUAL(kind, MPI_CART);
    MPI_Cart_coords(cart, rank, 2, coordinates);
    MPI_Cart_rank(cart, coordinates, &found);
    EQUAL(found, rank);
    for (int d = 0; d < 2; d++) MPI_Cart_shift(cart, d, 1, &sources[2 * d], &sources[2 * d + 1]);
    neighbours(cart, 4, sources, 4, sources, 41);
    MPI_Cart_sub(cart, keep, &sub);
    EQUAL(size_of_(sub), dims[1]);
    use(sub, 42);
    MPI_Comm_dup(cart, &general); /* its topology goes with it */
    MPI_Topo_test(general, &kind);
    EQUAL(kind, MPI_CART);
    neighbours(general, 4, sources, 4, sources, 43);
    MPI_Comm_free(&general);
    MPI_Comm_free(&sub);
    MPI_Comm_free(&cart);

    /* A ring both ways. */
    int index[size], edges[2 * size], next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < size; i++) {
        index[i] = 2 * (i + 1);
        edges[2 * i] = (i + size - 1) % size;
        edges[2 * i + 1] = (i + 1) % size;
    }
    int ring[2] = {previous, next}, weights[2] = {1, 2};
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &graph);
    MPI_Graph_neighbors_count(graph, rank, &count);
    EQUAL(count, 2);
    use(graph, 44);
    if (size > 2) neighbours(graph, 2, ring, 2, ring, 45);
    MPI_Comm_free(&graph);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, ring, weights, 1, &next, weights, MPI_INFO_NULL, 0, &adjacent);
    MPI_Comm_free(&adjacent);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &previous, weights, 1, &next, weights, MPI_INFO_NULL, 0, &adjacent);
    neighbours(adjacent, 1, &previous, 1, &next, 46);
    MPI_Comm_free(&adjacent);
    /* Rank 0 describes it all. */
    int all[size], degrees[size], targets[size], each_weight[size];
    for (int i = 0; i < size; i++) all[i] = i, degrees[i] = each_weight[i] = 1, targets[i] = (i + 1) % size;
    MPI_Dist_graph_create(MPI_COMM_WORLD, rank == 0 ? size : 0, all, degrees, targets, each_weight, MPI_INFO_NULL, 0,
                          &general);
    int in, out, weighted;
    MPI_Dist_graph_neighbors_count(general, &in, &out, &weighted);
    EQUAL(in, 1);
    EQUAL(out, 1);
    neighbours(general, 1, &previous, 1, &next, 47);
    MPI_Comm_free(&general);
}

/* ---- intercommunicators ---- */

static void intercommunicators(void)
{
    MPI_Comm half, inter, dup, merged, part, made;
    MPI_Group local, remote, some;
    MPI_Request request;
    int side = rank % 2, flag, ours, theirs, result, first = 0;
    if (size < 2) return;
    MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 60, &inter);
    MPI_Comm_test_inter(inter, &flag);
    REQUIRE(flag);
    MPI_Comm_size(inter, &ours);
    MPI_Comm_remote_size(inter, &theirs);
    EQUAL(ours, side == 0 ? (size + 1) / 2 : size / 2);
    EQUAL(theirs, size - ours);
    MPI_Comm_group(inter, &local);
    MPI_Comm_remote_group(inter, &remote);
    MPI_Group_compare(local, remote, &result);
    EQUAL(result, MPI_UNEQUAL);
    MPI_Comm_dup(inter, &dup);
    MPI_Comm_compare(inter, dup, &result);
    EQUAL(result, MPI_CONGRUENT);
    MPI_Comm comms[2] = {inter, dup};
    for (int c = 0; c < 2; c++) {
        long mine = 1 + me_on(half), sum = -1, all[size], wanted = (long)theirs * (theirs + 1) / 2, root;
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comms[c]);
        EQUAL(sum, wanted);
        MPI_Allgather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, comms[c]);
        for (int i = 0; i < theirs; i++) EQUAL(all[i], i + 1);
        MPI_Iallgather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, comms[c], &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int from = 0; from < 2; from++) { /* from both sides */
            root = side == from ? (me_on(half) == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
            long word = side == from ? 100 + from : -1;
            MPI_Bcast(&word, 1, MPI_LONG, (int)root, comms[c]);
            EQUAL(word, 100 + from);
            sum = -1;
            MPI_Reduce(&mine, &sum, 1, MPI_LONG, MPI_MAX, (int)root, comms[c]);
            if (root == MPI_ROOT) EQUAL(sum, theirs);
            word = -1;
            for (int i = 0; i < theirs; i++) all[i] = 7 * i;
            MPI_Scatter(all, 1, MPI_LONG, &word, 1, MPI_LONG, (int)root, comms[c]);
            if (side != from) EQUAL(word, 7 * me_on(half));
            MPI_Gather(&mine, 1, MPI_LONG, all, 1, MPI_LONG, (int)root, comms[c]);
            if (root == MPI_ROOT) EQUAL(all[theirs - 1], theirs);
        }
        MPI_Barrier(comms[c]);
        /* Whoever is first: the order of the sources, told to everybody. */
        MPI_Isend(&mine, 1, MPI_LONG, 0, 61, comms[c], &request);
        if (me_on(half) == 0) {
            for (int i = 0; i < theirs; i++) {
                MPI_Status status;
                MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[c], &status);
                MPI_Recv(&sum, 1, MPI_LONG, status.MPI_SOURCE, status.MPI_TAG, comms[c], MPI_STATUS_IGNORE);
                EQUAL(sum, status.MPI_SOURCE + 1);
                if (i == 0) first = status.MPI_SOURCE;
            }
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Bcast(&first, 1, MPI_INT, 0, half);
        MPI_Barrier(comms[c]);
    }
    MPI_Intercomm_merge(inter, 1 - side, &merged);
    EQUAL(size_of_(merged), size);
    EQUAL(me_on(merged), side == 1 ? me_on(half) : theirs + me_on(half));
    use(merged, 62);
    /* Parts of an intercommunicator: by split, and by a group of each side. */
    MPI_Comm_split(inter, 0, -rank, &part);
    MPI_Comm_test_inter(part, &flag);
    REQUIRE(flag);
    MPI_Barrier(part);
    int zero = 0;
    MPI_Group_incl(local, 1, &zero, &some);
    MPI_Comm_create(inter, some, &made);
    REQUIRE((made != MPI_COMM_NULL) == (me_on(half) == 0));
    if (made != MPI_COMM_NULL) {
        int word = side, other = -1;
        MPI_Sendrecv(&word, 1, MPI_INT, 0, 63, &other, 1, MPI_INT, 0, 63, made, MPI_STATUS_IGNORE);
        EQUAL(other, 1 - side);
        MPI_Comm_free(&made);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&local);
    MPI_Group_free(&remote);
    MPI_Comm *all[] = {&part, &merged, &dup, &inter, &half};
    for (int i = 0; i < 5; i++) MPI_Comm_free(all[i]);
}

/* ---- several under way at a time ---- */

static void several_idups(void)
{
    MPI_Comm parent[2], made[4];
    MPI_Request requests[4];
    int index, result;
    MPI_Comm_dup(MPI_COMM_WORLD, &parent[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &parent[1]);
    for (int round = 0; round < 10; round++) {
        /* Of other members, then of the same members in another order, then twice of the same. */
        MPI_Comm_idup(parent[0], &made[0], &requests[0]);
        MPI_Comm_idup(MPI_COMM_SELF, &made[1], &requests[1]);
        use(MPI_COMM_WORLD, 70 + round);
        MPI_Comm_idup(parent[1], &made[2], &requests[2]);
        MPI_Comm_idup(parent[0], &made[3], &requests[3]);
        if (round % 2) {
            MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        } else {
            for (int i = 0; i < 4; i++) MPI_Waitany(4, requests, &index, MPI_STATUS_IGNORE);
        }
        MPI_Comm_compare(made[0], parent[0], &result);
        EQUAL(result, MPI_CONGRUENT);
        for (int i = 3; i >= 0; i--) use(made[i], 80 + 4 * round + i);
        for (int i = 0; i < 4; i++) MPI_Comm_free(&made[i]);
    }
    MPI_Comm_free(&parent[0]);
    MPI_Comm_free(&parent[1]);
}

/* ---- made and freed, again and again ---- */

static long resident_pages(void)
{
    long total, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &total, &resident) != 2) FAIL("/proc/self/statm cannot be read");
    fclose(file);
    return resident;
}

static void make_one(int i)
{
    MPI_Comm comm;
    MPI_Request request;
    MPI_Group world;
    switch (i % 6) {
    case 0: MPI_Comm_dup(MPI_COMM_WORLD, &comm); break;
    case 1: MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm); break;
    case 2:
        MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    case 3:
        MPI_Comm_group(MPI_COMM_WORLD, &world);
        MPI_Comm_create_group(MPI_COMM_WORLD, world, 9, &comm);
        MPI_Group_free(&world);
        break;
    case 4: MPI_Cart_create(MPI_COMM_WORLD, 1, &size, (int[]){1}, 0, &comm); break;
    default: MPI_Comm_dup(MPI_COMM_SELF, &comm); break;
    }
    if (i % 16 == 0) use(comm, i);
    if (i % 16 == 5) MPI_Barrier(comm);
    MPI_Comm_free(&comm);
}

static void leaks_nothing(int loops)
{
    enum { ALLOWED = 4 << 20 };
    long page = sysconf(_SC_PAGESIZE), before;
    for (int i = 0; i < loops / 5; i++) make_one(i); /* what is kept for good is there now */
    MPI_Barrier(MPI_COMM_WORLD);
    before = resident_pages();
    for (int i = 0; i < loops; i++) make_one(i);
    long grown = (resident_pages() - before) * page;
    if (grown > ALLOWED) {
        FAIL("%d communicators took %ld KiB for good: %ld bytes each", loops, grown / 1024, grown / loops);
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    groups();
    attributes();
    properties();
    topologies();
    intercommunicators();
    if (argc > 2 && strcmp(argv[2], "idups") == 0) several_idups();
    leaks_nothing(argc > 1 ? atoi(argv[1]) : 2000);
    use(MPI_COMM_WORLD, 99);
    return finish("groups");
}
