/* Runs kernels on the host: one fiber for each thread of a block, blocks one after the other.
 *
 * A fiber runs until it waits: at a barrier, in a warp collective for the other lanes, on an
 * mbarrier. Whoever completes such a meeting computes its result for all and wakes them. When
 * nobody can go on the kernel hangs, and the process ends with a list of who waits where; likewise
 * when lanes meet in different collectives, or a lane leaves while others wait for it. Only where a
 * thread waits for another block's count the next block is run meanwhile. */
#include "emulated_fibers.h"
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

enum { MAX_THREAD = 1024, MAX_BARRIER = 16, MAX_SHARED = 227 << 10 };
static const size_t fiber_stack = 256 << 10;

typedef struct barrier {
    int arrived, expected, sum;
} barrier;

typedef struct mbar {
    int32_t tx;
    uint16_t count;
    uint16_t pending : 15, phase : 1;
} mbar;

uint3 emu_thread_idx, emu_block_idx;
dim3 emu_block_dim, emu_grid_dim;

static fiber fibers[MAX_THREAD], scheduler;
static warp warps[MAX_THREAD / 32];
static barrier barriers[MAX_BARRIER];
static fiber *now;
static int n_thread, n_live, order;
static uint32_t chance = 1;
static long progress;
static unsigned char *shared;
static copies bulk;
static emu_body *body;
static void *body_arg;
/* ---- failing ---- */

static int index_of(const fiber *f)
{
    return (int)(f - fibers);
}

void emu_fail(emu_where where, const char *what)
{
    fprintf(stderr, "%s:%d: block %u,%u,%u thread %d: %s\n", where.file, where.line,
            emu_block_idx.x, emu_block_idx.y, emu_block_idx.z, now ? index_of(now) : -1, what);
    abort();
}

static void fail_hung(void)
{
    static const char *const names[] = {"runs",           "in a warp collective", "at a barrier",
                                        "on an mbarrier", "for other blocks",     "done"};
    fprintf(stderr, "block %u,%u,%u hangs:\n", emu_block_idx.x, emu_block_idx.y, emu_block_idx.z);
    for (int i = 0; i < n_thread; i++) {
        const fiber *f = &fibers[i], *before = i ? f - 1 : NULL;
        if (before && before->state == f->state && before->where.line == f->where.line)
            continue;
        fprintf(stderr, "  from thread %d: %s, %s:%d\n", i, names[f->state],
                f->where.file ? f->where.file : "-", f->where.line);
    }
    abort();
}

/* ---- changing fibers ---- */

extern "C" void emu_switch(void **save, void *load);
extern "C" void emu_begin(void);

#if defined(__aarch64__)
asm(R"(
    .text
    .global emu_switch
    .type emu_switch, %function
emu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size emu_switch, .-emu_switch
)");

static void *first_sp(unsigned char *top)
{
    void **sp = (void **)(top - 160);
    memset(sp, 0, 160);
    sp[11] = (void *)emu_begin; /* x30 */
    return sp;
}
#elif defined(__x86_64__)
asm(R"(
    .text
    .global emu_switch
    .type emu_switch, @function
emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emu_switch, .-emu_switch
)");

static void *first_sp(unsigned char *top)
{
    /* six registers and the address to return to; a function begins 8 bytes off alignment */
    void **sp = (void **)(top - 64);
    memset(sp, 0, 64);
    sp[6] = (void *)emu_begin;
    return sp;
}
#else
#error "a context switch for this processor is missing"
#endif

static void switch_to(fiber *to)
{
    fiber *from = now;
    now = to;
    if (to != &scheduler)
        emu_thread_idx = to->thread;
#ifdef EMU_ASAN
    __sanitizer_start_switch_fiber(from->state == DONE ? NULL : &from->fake_stack, to->stack,
                                   to->stack_bytes);
#endif
    emu_switch(&from->sp, to->sp);
#ifdef EMU_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#endif
}

/* One that waits on an mbarrier or a count looks again when anything has happened since. */
static bool can_go_on(const fiber *f)
{
    return f->state == RUNS ||
           ((f->state == ON_MBAR || f->state == ON_COUNT) && f->seen != progress);
}

static fiber *next_fiber(void)
{
    int at = index_of(now), step = order == EMU_BACKWARD ? n_thread - 1 : 1;
    if (order == EMU_RANDOM) {
        chance = chance * 1664525u + 1013904223u;
        at = (int)((chance >> 8) % (unsigned)n_thread);
    }
    for (int i = 0; i < n_thread; i++) {
        at += step;
        at -= at >= n_thread ? n_thread : 0;
        if (can_go_on(&fibers[at]))
            return &fibers[at];
    }
    return NULL;
}

static bool run_another(void);

/* The current fiber waits as `state` until someone makes it run again. */
static void wait_as(wait_state state, emu_where where)
{
    now->state = state;
    now->where = where;
    fiber *next = next_fiber();
    while (!next && run_another())
        next = next_fiber();
    if (!next)
        fail_hung();
    if (next != now)
        switch_to(next);
    now->state = RUNS;
}

/* ---- barriers ---- */

static void open_barrier(int id)
{
    barrier *b = &barriers[id];
    for (int i = 0; i < n_thread; i++)
        if (fibers[i].state == AT_BARRIER && fibers[i].barrier == id) {
            fibers[i].state = RUNS;
            fibers[i].barrier_result = b->sum;
        }
    now->barrier_result = b->sum;
    *b = barrier{0, 0, 0};
    progress++;
}

int emu_barrier(int id, int n, bool wait, int value, emu_where where)
{
    if (id < 0 || id >= MAX_BARRIER || n % 32 != 0 || n > n_thread)
        emu_fail(where, "this barrier does not exist, or not for this many threads");
    barrier *b = &barriers[id];
    if (b->arrived && b->expected != n)
        emu_fail(where, "threads at one barrier disagree about their number");
    b->expected = n;
    b->sum += value;
    b->arrived++;
    if (b->arrived == (n ? n : n_live))
        open_barrier(id);
    else if (wait) {
        now->barrier = id;
        wait_as(AT_BARRIER, where);
    }
    return now->barrier_result;
}

/* ---- collectives ---- */

int emu_lane(void)
{
    return index_of(now) % 32;
}

static void meet(collective kind, int variant, uint32_t mask, emu_where where)
{
    int lane = emu_lane();
    warp *w = &warps[index_of(now) / 32];
    fiber *first = now - lane;
    if (!(mask >> lane & 1))
        emu_fail(where, "this lane is not in the mask it gives");
    if (!w->arrived)
        *w = warp{kind, variant, mask, 0, where};
    else if (w->kind != kind || w->variant != variant || w->mask != mask ||
             (kind != C_SYNC && w->where.line != where.line)) {
        fprintf(stderr, "lanes %08x are at %s:%d with mask %08x\n", w->arrived, w->where.file,
                w->where.line, w->mask);
        emu_fail(where, "lanes of a warp diverge in a collective");
    }
    w->arrived |= 1u << lane;
    if (w->arrived != mask) {
        wait_as(IN_WARP, where);
        return;
    }
    for (int i = 0; i < 32; i++) {
        if (!(mask >> i & 1))
            continue;
        if (index_of(first) + i >= n_thread || first[i].state == DONE)
            emu_fail(where, "a lane of the mask is not there any more");
    }
    emu_compute(w, first);
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1)
            first[i].state = RUNS;
    w->arrived = 0;
    progress++;
}

uint32_t emu_shuffle(uint32_t mask, uint32_t value, int from, emu_where where)
{
    now->in[0] = value;
    now->in[1] = (uint32_t)from;
    meet(C_SHUFFLE, 0, mask, where);
    return now->out[0];
}

uint32_t emu_ballot(uint32_t mask, uint32_t value, emu_where where)
{
    now->in[0] = value;
    meet(C_BALLOT, 0, mask, where);
    return now->out[0];
}

void emu_syncwarp(uint32_t mask, emu_where where)
{
    meet(C_SYNC, 0, mask, where);
}

void emu_mma(float c[4], const uint32_t a[4], const uint32_t b[2], bool half, emu_where where)
{
    memcpy(now->in, a, 16);
    memcpy(now->in + 4, b, 8);
    memcpy(now->in + 6, c, 16);
    meet(C_MMA, half, 0xFFFFFFFFu, where);
    memcpy(c, now->out, 16);
}

void emu_mma_tf32(float c[4], const uint32_t a[4], const uint32_t b[2], emu_where where)
{
    memcpy(now->in, a, 16);
    memcpy(now->in + 4, b, 8);
    memcpy(now->in + 6, c, 16);
    meet(C_MMA_TF32, 0, 0xFFFFFFFFu, where);
    memcpy(c, now->out, 16);
}

void emu_mma_s8(int c[4], const uint32_t a[4], const uint32_t b[2], bool a_unsigned,
                emu_where where)
{
    memcpy(now->in, a, 16);
    memcpy(now->in + 4, b, 8);
    memcpy(now->in + 6, c, 16);
    meet(C_MMA_S8, a_unsigned, 0xFFFFFFFFu, where);
    memcpy(c, now->out, 16);
}

void emu_ldmatrix(uint32_t *r, int n, bool trans, const void *row, emu_where where)
{
    if ((uintptr_t)row % 16)
        emu_fail(where, "ldmatrix: a row is not aligned to 16 bytes");
    now->row = row;
    meet(C_LDMATRIX, n << 1 | trans, 0xFFFFFFFFu, where);
    memcpy(r, now->out, (size_t)n * 4);
}

/* ---- copies that arrive later ---- */

static void begin_copy(copies *list, copy c, emu_where where)
{
    if ((uintptr_t)c.to % 16 || (uintptr_t)c.from % 16 || c.bytes % 16)
        emu_fail(where, "a copy that is not aligned to 16 bytes");
    memset(c.to, 0xFF, c.bytes);
    if (list->n == list->max) {
        list->max = list->max ? 2 * list->max : 64;
        list->item = (copy *)realloc(list->item, (size_t)list->max * sizeof *list->item);
        if (!list->item)
            emu_fail(where, "out of memory");
    }
    list->item[list->n++] = c;
}

/* One row of 128 bytes: number `row` of the box, at its place in the other dimensions. */
static void finish_box_row(const copy *c, int row, const int *at)
{
    const unsigned char *from = c->map.data;
    bool there = true;
    for (int d = 1; d < EMU_DIMS; d++) {
        from += at[d] * c->map.stride[d];
        there &= at[d] >= 0 && at[d] < c->map.size[d];
    }
    for (int piece = 0; piece < 8; piece++) {
        int k = at[0] + piece * 8;
        unsigned char *to = c->to + row * 128 + (c->map.swapped ? piece ^ row % 8 : piece) * 16;
        if (there && k < c->map.size[0])
            memcpy(to, from + (size_t)k * 2, 16);
        else
            memset(to, 0, 16);
    }
}

static void finish_box(const copy *c)
{
    const int *box = c->map.box;
    for (int row = 0; row < (int)(c->bytes / 128); row++) {
        int at[EMU_DIMS] = {c->at[0]}, rest = row;
        for (int d = 1; d < EMU_DIMS; d++) {
            at[d] = c->at[d] + rest % box[d];
            rest /= box[d];
        }
        finish_box_row(c, row, at);
    }
}

static void finish_copy(const copy *c)
{
    if (c->map.data) {
        finish_box(c);
        return;
    }
    memcpy(c->to, c->from, c->n_copied);
    memset(c->to + c->n_copied, 0, c->bytes - c->n_copied);
}

void emu_cp_async(void *to, const void *from, int bytes, int n_copied, emu_where where)
{
    copy c = {(unsigned char *)to,
              (const unsigned char *)from,
              (size_t)bytes,
              (size_t)n_copied,
              now->group,
              NULL,
              {},
              {}};
    begin_copy(&now->under_way, c, where);
}

void emu_cp_async_commit(void)
{
    now->group++;
}

void emu_cp_async_wait(int n_left)
{
    copies *list = &now->under_way;
    int kept = 0;
    for (int i = 0; i < list->n; i++) {
        if (list->item[i].group < now->group - n_left)
            finish_copy(&list->item[i]);
        else
            list->item[kept++] = list->item[i];
    }
    list->n = kept;
}

static mbar mbar_at(const uint64_t *bar)
{
    mbar m;
    memcpy(&m, bar, sizeof m);
    return m;
}

static void mbar_put(uint64_t *bar, mbar m)
{
    static_assert(sizeof m == sizeof *bar, "an mbarrier has eight bytes");
    if (m.pending == 0 && m.tx == 0) {
        m.phase = !m.phase;
        m.pending = m.count & 0x7FFF;
        progress++;
    }
    memcpy(bar, &m, sizeof m);
}

void emu_mbar_init(uint64_t *bar, int count, emu_where where)
{
    if (count < 1 || count > 0x7FFF || (uintptr_t)bar % 8)
        emu_fail(where, "no mbarrier can be like this");
    mbar m = {0, (uint16_t)count, 0, 0};
    m.pending = (uint16_t)(count & 0x7FFF);
    memcpy(bar, &m, sizeof m);
}

void emu_mbar_arrive(uint64_t *bar, int tx_bytes, emu_where where)
{
    mbar m = mbar_at(bar);
    if (!m.pending)
        emu_fail(where, "more arrivals than this mbarrier expects");
    m.tx += tx_bytes;
    m.pending = (uint16_t)((m.pending - 1) & 0x7FFF);
    mbar_put(bar, m);
}

static void finish_bulk(const uint64_t *bar)
{
    int kept = 0;
    for (int i = 0; i < bulk.n; i++) {
        copy c = bulk.item[i];
        if (c.bar != bar) {
            bulk.item[kept++] = c;
            continue;
        }
        finish_copy(&c);
        mbar m = mbar_at(bar);
        m.tx -= (int32_t)c.bytes;
        mbar_put(c.bar, m);
    }
    bulk.n = kept;
}

void emu_mbar_wait(uint64_t *bar, int parity, emu_where where)
{
    for (;;) {
        if (mbar_at(bar).phase != (parity & 1))
            return;
        finish_bulk(bar);
        if (mbar_at(bar).phase != (parity & 1))
            return;
        now->seen = progress;
        wait_as(ON_MBAR, where);
    }
}

void emu_await_count(const uint32_t *counter, uint32_t target, emu_where where)
{
    while ((int32_t)(*counter - target) < 0) {
        now->seen = progress;
        wait_as(ON_COUNT, where);
    }
}

void emu_bulk_g2s(void *to, const void *from, uint32_t bytes, uint64_t *bar, emu_where where)
{
    copy c = {(unsigned char *)to, (const unsigned char *)from, bytes, bytes, 0, bar, {}, {}};
    begin_copy(&bulk, c, where);
    progress++; /* who waits on the barrier looks again */
}

static emu_ahead asked_ahead;

void emu_bulk_ahead(const void *global, uint32_t bytes, emu_where where)
{
    const volatile unsigned char *from = (const unsigned char *)global;
    if ((uintptr_t)from % 16 || bytes % 16 || bytes == 0)
        emu_fail(where, "what is asked for is not aligned to 16 bytes");
    for (uint32_t i = 0; i < bytes; i += 16) /* it must be there */
        (void)from[i];
    emu_ahead *all = &asked_ahead;
    const unsigned char *first = (const unsigned char *)global, *end = first + bytes;
    all->first = all->bytes && all->first < first ? all->first : first;
    all->end = all->bytes && all->end > end ? all->end : end;
    all->bytes += bytes;
}

emu_ahead emu_take_ahead(void)
{
    emu_ahead all = asked_ahead;
    asked_ahead = emu_ahead{NULL, NULL, 0};
    return all;
}

void emu_box_g2s(void *to, const emu_tensor_map *map, const int *at, uint64_t *bar, emu_where where)
{
    copy c = {(unsigned char *)to, map->data, 128, 0, 0, bar, *map, {}};
    for (int d = 0; d < EMU_DIMS; d++) {
        c.at[d] = at[d];
        c.bytes *= d ? (size_t)map->box[d] : 1;
        if (at[d] < 0 || map->box[d] < 1 || map->box[d] > 256)
            emu_fail(where, "a box begins before its values, or is too large");
    }
    if ((uintptr_t)to % (map->swapped ? 1024 : 128))
        emu_fail(where, "a box that is not aligned");
    begin_copy(&bulk, c, where);
    progress++;
}

/* ---- launches ---- */

unsigned char *emu_shared(void)
{
    return shared;
}

static void leave(void)
{
    now->state = DONE;
    n_live--;
    if (barriers[0].arrived && barriers[0].arrived == n_live)
        open_barrier(0);
    progress++;
    fiber *next = n_live ? next_fiber() : &scheduler;
    if (!next)
        fail_hung();
    switch_to(next);
    abort();
}

extern "C" void emu_begin(void)
{
#ifdef EMU_ASAN
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &stack, &bytes);
    if (!scheduler.stack) { /* the first of all comes from there */
        scheduler.stack = (unsigned char *)(uintptr_t)stack;
        scheduler.stack_bytes = bytes;
    }
#endif
    body(body_arg);
    leave();
}

/* Stacks for the threads of a block; those of blocks that wait are in use. */
static void make_stacks(void)
{
    size_t guard = (size_t)sysconf(_SC_PAGESIZE), each = fiber_stack + guard;
    unsigned char *map = (unsigned char *)mmap(NULL, each * MAX_THREAD, PROT_NONE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (int i = 0; i < MAX_THREAD; i++) {
        fibers[i].stack = map + (size_t)i * each + guard;
        fibers[i].stack_bytes = fiber_stack;
        fibers[i].under_way = copies{NULL, 0, 0};
        if (map == MAP_FAILED || mprotect(fibers[i].stack, fiber_stack, PROT_READ | PROT_WRITE)) {
            perror("stacks for the threads of a block");
            abort();
        }
    }
}

static void run_block(void)
{
    n_live = n_thread;
    memset(barriers, 0, sizeof barriers);
    memset(warps, 0, sizeof warps);
    for (int i = 0; i < n_thread; i++) {
        fiber *f = &fibers[i];
        unsigned x = emu_block_dim.x, y = emu_block_dim.y;
        f->thread = uint3{(unsigned)i % x, (unsigned)i / x % y, (unsigned)i / x / y};
        f->state = RUNS;
        f->under_way.n = 0;
        f->group = 0;
#ifdef EMU_ASAN /* the outermost frames of the block before were never left */
        __asan_unpoison_memory_region(f->stack + fiber_stack - 4096, 4096);
#endif
        f->sp = first_sp(f->stack + fiber_stack);
    }
    now = &scheduler;
    switch_to(&fibers[order == EMU_BACKWARD ? n_thread - 1 : 0]);
    now = NULL;
    if (bulk.n)
        emu_fail(emu_where{"-", 0}, "a bulk copy is under way at the end of its block");
}

/* ---- blocks ---- */

static size_t n_block, next_block, shared_size;

/* exactly as large as asked for, so that a sanitizer sees what lies behind */
static bool make_shared(void)
{
    void *memory;
    if (posix_memalign(&memory, 1024, shared_size ? shared_size : 1) != 0)
        return false;
    shared = (unsigned char *)memory;
    return true;
}

static void run_next(void)
{
    size_t i = next_block++, at = order == EMU_BACKWARD ? n_block - 1 - i : i;
    emu_block_idx =
        uint3{(unsigned)(at % emu_grid_dim.x), (unsigned)(at / emu_grid_dim.x % emu_grid_dim.y),
              (unsigned)(at / emu_grid_dim.x / emu_grid_dim.y)};
    memset(shared, 0xFF, shared_size);
    run_block();
}

/* A block that waits for others: all that the next one would overwrite. */
typedef struct waiting_block {
    fiber fibers[MAX_THREAD], scheduler, *now;
    warp warps[MAX_THREAD / 32];
    barrier barriers[MAX_BARRIER];
    int n_live;
    unsigned char *shared;
    copies bulk;
    uint3 block, thread;
} waiting_block;

/* Runs the next block while this one waits for a count; false: nobody does, or there is none. */
static bool run_another(void)
{
    static fiber spare[8][MAX_THREAD]; /* stacks of blocks inside others */
    static int depth;
    bool waits = false;
    for (int i = 0; i < n_thread; i++)
        waits |= fibers[i].state == ON_COUNT;
    if (!waits || next_block == n_block || depth == 8)
        return false;
    waiting_block *w = (waiting_block *)malloc(sizeof *w);
    if (!w)
        return false;
    memcpy(w->fibers, fibers, sizeof fibers);
    memcpy(w->warps, warps, sizeof warps);
    memcpy(w->barriers, barriers, sizeof barriers);
    w->scheduler = scheduler, w->now = now, w->n_live = n_live, w->shared = shared, w->bulk = bulk;
    w->block = emu_block_idx, w->thread = emu_thread_idx;
    if (!spare[depth][0].stack) {
        make_stacks();
        memcpy(spare[depth], fibers, sizeof fibers);
    }
    memcpy(fibers, spare[depth], sizeof fibers);
    scheduler.stack = now->stack;
    scheduler.stack_bytes = now->stack_bytes;
    bulk = copies{NULL, 0, 0};
    depth++;
    if (!make_shared())
        emu_fail(emu_where{"-", 0}, "out of memory");
    run_next();
    depth--;
    free(shared);
    free(bulk.item);
    memcpy(spare[depth], fibers, sizeof fibers);
    memcpy(fibers, w->fibers, sizeof fibers);
    memcpy(warps, w->warps, sizeof warps);
    memcpy(barriers, w->barriers, sizeof barriers);
    scheduler = w->scheduler, now = w->now, n_live = w->n_live, shared = w->shared, bulk = w->bulk;
    emu_block_idx = w->block, emu_thread_idx = w->thread;
    free(w);
    progress++;
    return true;
}

cudaError_t emu_run(dim3 grid, dim3 block, size_t shared_bytes, emu_body *b, void *arg)
{
    unsigned long n = (unsigned long)block.x * block.y * block.z;
    if (n < 1 || n > MAX_THREAD || shared_bytes > MAX_SHARED || grid.x < 1 || grid.y < 1 ||
        grid.z < 1 || grid.y > 65535 || grid.z > 65535)
        return cudaErrorInvalidConfiguration;
    cudaError_t fault = emu_fault();
    if (fault)
        return fault;
    if (!fibers[0].stack)
        make_stacks();
    emu_grid_dim = grid;
    emu_block_dim = block;
    n_thread = (int)n;
    body = b;
    body_arg = arg;
    shared_size = shared_bytes;
    n_block = (size_t)grid.x * grid.y * grid.z;
    next_block = 0;
    if (!make_shared())
        return cudaErrorMemoryAllocation;
    while (next_block < n_block)
        run_next();
    free(shared);
    shared = NULL;
    return cudaSuccess;
}

void emu_set_order(int new_order)
{
    order = new_order;
}

/* ---- half precision ---- */

uint16_t emu_double_to_half(double d)
{
    uint16_t sign = signbit(d) ? 0x8000 : 0;
    double a = fabs(d);
    if (isnan(a))
        return 0x7FFF;
    if (a >= 65520)
        return sign | 0x7C00;
    int exponent;
    frexp(a, &exponent); /* a = m 2^exponent, 0.5 <= m < 1 */
    if (a < 0x1p-14)
        return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(a, 24)));
    /* a mantissa that rounds up to 2048 carries into the exponent by itself */
    int mantissa = (int)nearbyint(ldexp(a, 11 - exponent));
    return (uint16_t)(sign | (((exponent + 14) << 10) + mantissa - 1024));
}

uint16_t emu_float_to_half(float f)
{
    return emu_double_to_half(f);
}
