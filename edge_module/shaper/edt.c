// SPDX-License-Identifier: Apache-2.0

/* Earliest departure time: gives each packet that leaves the uplink the time
 * at which its class lets it go. The fq qdisc releases it then.
 *
 * Classes are known by the minor number in the packet's priority, as with HTB.
 * There is no lock: a class's next departure is one number that all processors
 * add to. Compiled by setup.py; loaded by edge_module/shaper/edt.py, which has
 * the layout of the structures.
 */

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define NS_PER_S 1000000000ULL
#define ROOT_MAJOR 0x10000
#define HOST_MINOR 2
/* What a class that was idle may send at once. */
#define BURST_NS 500000ULL
#define AHEAD_NS (2 * NS_PER_S)

static void *(*map_lookup)(void *map, const void *key) =
    (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;

struct class {
    __u64 rate; /* bytes per second */
    __u64 limit_ns; /* a packet that would wait longer is dropped */
    __u32 overhead_bytes; /* of the wire, per frame */
    __u32 frame_min_bytes;
    __u8 shape[40]; /* what the agent alone reads */
};

struct state {
    __u64 next_ns; /* when the next packet may leave */
    __u64 rate; /* for which this was computed */
};

struct count {
    __u64 bytes; /* of frames, as HTB counts them */
    __u64 packets;
    __u64 drops;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, struct class);
    __uint(max_entries, 16384);
} classes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __type(key, __u32);
    __type(value, struct state);
    __uint(max_entries, 16384);
} states SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __type(key, __u32);
    __type(value, struct count);
    __uint(max_entries, 16384);
    __uint(map_flags, BPF_F_NO_PREALLOC);
} counts SEC(".maps");

SEC("tc")
int edt(struct __sk_buff *skb)
{
    __u32 minor = skb->priority & 0xffff;
    struct class *class = 0;

    if ((skb->priority & ~0xffffU) == ROOT_MAJOR)
        class = map_lookup(&classes, &minor);
    if (!class) {
        minor = HOST_MINOR;
        class = map_lookup(&classes, &minor);
    }
    struct state *state = map_lookup(&states, &minor);
    struct count *count = map_lookup(&counts, &minor);
    if (!class || !state || !count || !class->rate)
        return TC_ACT_OK;

    __u64 frames = skb->gso_segs > 1 ? skb->gso_segs : 1;
    __u64 bytes = skb->wire_len + frames * class->overhead_bytes;
    __u64 least = frames * class->frame_min_bytes;
    if (bytes < least)
        bytes = least;
    __u64 takes_ns = bytes * NS_PER_S / class->rate;
    __u64 now = ktime_get_ns();

    /* A class whose rate rises owes nothing for what it sent before. */
    if (state->rate != class->rate) {
        if (class->rate > state->rate && state->next_ns > now)
            state->next_ns = now;
        state->rate = class->rate;
    }
    __u64 start = __sync_fetch_and_add(&state->next_ns, takes_ns);
    if (start + BURST_NS < now) {
        /* It was idle. Where another processor says so too, one of them is
         * enough; the others have queued behind it. */
        __u64 fresh = now - BURST_NS;
        __sync_val_compare_and_swap(&state->next_ns, start + takes_ns,
                                    fresh + takes_ns);
        start = fresh;
    }
    if (start > now + class->limit_ns) {
        __sync_fetch_and_sub(&state->next_ns, takes_ns);
        count->drops++;
        return TC_ACT_SHOT;
    }
    count->bytes += skb->wire_len;
    count->packets += frames;
    /* TCP may pace by itself. A time further ahead is of another clock. */
    __u64 own = skb->tstamp;
    if (own > now + AHEAD_NS)
        own = 0;
    skb->tstamp = start > now && start > own ? start : own;
    return TC_ACT_OK;
}

char _license[] SEC("license") = "Apache-2.0";
