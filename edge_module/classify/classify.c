// SPDX-License-Identifier: Apache-2.0

/*
 * A class for every packet of a VM, and for what leaves by an exit.
 *
 * The class is the packet's priority, which HTB at the uplink goes by. Where
 * nothing says otherwise, a packet of a port has the port's own class, and one
 * of an exit that of unknown ports. The layouts of keys and values are those
 * of edge_module/classify/bpf_maps.py.
 *
 * What packets teach (who is near, who was reached) is kept per device, so
 * that nobody fills another's room. Times are seconds of the monotonic clock;
 * a second that is lost between processors does no harm.
 */

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROOT_MAJOR 0x70000000u
#define UNKNOWN (ROOT_MAJOR | 6)
/* Part of a limited class that tells the device. */
#define SEATS 0xff
/* Longest TCP packet without data: all options, and the frame's header. */
#define CONTROL_BYTES 140
#define NEAR_S 300
#define OWED_S 4
#define REACHED_S 4
/* An address that was in use lately gives its place to no other. */
#define HELD_S 4
#define FRAGMENTED_S 2
#define SECOND_NS 1000000000ull
#define BFD_PORT 3784
#define BFD_BYTES 80
#define MOST_EXTENSIONS 6
#define GOES_ON (-1)
/*
 * Keeps clang from adding a variable to a pointer later, which the kernel
 * refuses from those who may not see its memory (CAP_PERFMON). For the same
 * reason no pointer is looked at twice for whether it is null, and functions
 * are small enough to need little of the stack (see struct packet).
 */
#define KEPT(value) asm volatile("" : "+r"(value))
/* What an IPv4 address begins with as one of IPv6. */
#define MAPPED 0xffff0000ull

/*
 * Buckets of a device's cache: a port has those of neighbours and, behind
 * them, those of the IP addresses that it sends to; an exit has neighbours.
 */
#define PORT_BITS 9
#define EXIT_BITS 13
#define PEERS_BITS 6
#define PEERS_AT (1 << PORT_BITS)
#define NEIGHBOURS 8
#define PEERS 4
/*
 * New neighbours by second, and at once. So many in HELD_S leave most buckets
 * with room, and who sends many packets soon finds a place beside a flood of
 * ever other addresses.
 */
#define PORT_MEETS_PER_S 192
#define PORT_MEETS_AT_ONCE 384
#define EXIT_MEETS_PER_S 4096
#define EXIT_MEETS_AT_ONCE 8192

/* PEER: of a class; with the address 0 where it has others. */
enum mac_kind { TO, HOME, PEER };

/* Kinds of flow entries that there are. */
#define HAS_PORTS 1
#define HAS_PAIRS 2
/* Beside them: an entry is for addresses alone that sent something. */
#define FOLLOWS 4

struct settings {
	__u32 entries;	/* HAS_… */
	__u32 follows;	/* whether limits by destination hold */
};

/* Classes of a device; 0 for none. */
struct device {
	__u32 own;
	__u32 control;
	__u32 others;
	__u32 learns;
	__u64 seed;
	__u64 meeting_ns;	/* when the next new neighbour is due */
	__u64 reaching_ns;	/* when the next destination is due */
	__u64 spare_ns;		/* of fragments at a port, of BFD at an exit */
	__u64 received_bytes;	/* TCP data that came from other hosts */
	__u64 received_packets;
};

struct address {
	__u64 words[2];
};

/* Of an entry, or of a datagram in fragments. */
struct flow_key {
	__u32 ifindex;
	union {
		struct {
			__be16 port;
			__u8 protocol;
		};
		__u32 word;	/* both of these; a datagram's number */
	};
	struct address source;
	struct address target;
};

struct flow {
	__u32 classid;
	__u32 near_mark;	/* see is_near() */
	__u64 bytes;
	__u64 packets;
};

struct mac_key {
	__u32 ifindex;
	union {
		struct {
			__u16 kind;
			__u8 mac[ETH_ALEN];
		};
		__u32 kind_and_mac[2];
	};
};

struct fragment {
	__u32 classid;
	__u32 at_s;
};

/* An Ethernet address that a device has to do with. */
struct neighbour {
	__u64 mac;
	__u32 used_s;		/* the one unused for longest gives way */
	__u32 near_s;		/* it sent something */
	__u32 owed_s;		/* it sent TCP data */
	__u32 reached_s;	/* it was sent something that is unmanaged */
};

/* An IP address that a port sends to, without an entry. */
struct peer {
	struct address address;
	__u32 used_s;
	__u32 pad;
	__u64 pad2;
	__u64 bytes;
	__u64 packets;
};

/*
 * What the headers of a processor's packet say, and keys for look-ups. No
 * other packet comes meanwhile. On the stack each of these words would cost a
 * barrier: the kernel adds one to each first store there (Spectre, variant 4)
 * for a user without CAP_PERFMON.
 */
struct packet {
	struct flow_key key;
	struct mac_key mac;
	struct neighbour nobody;	/* always zeros */
	__u64 to;		/* Ethernet addresses, by number_of() */
	__u64 from;
	__u32 bytes;		/* after the frame's header */
	__u32 id;		/* of the datagram, where it is a fragment */
	__u32 now;		/* in seconds */
	__u32 place;		/* of a bucket */
	__u32 entries;		/* as in struct settings, and FOLLOWS */
	__u32 near_mark;	/* of a later fragment */
	__u32 l4_at;		/* after the frame's header */
	__u32 l3_bytes;		/* by the header */
	__be16 port;
	__u8 words;		/* of TCP's header */
	__u8 protocol;		/* 0: not known */
	__u8 is_ip;
	__u8 is_first;		/* of several fragments */
	__u8 is_later;
	__u8 is_without_data;
	__u8 has_ports;		/* port and words are read */
	struct {
		__u8 next;
		__u8 length;
		__be16 offset;
		__u32 id;
	} extension;
};

union bucket {
	struct neighbour neighbours[NEIGHBOURS];
	struct peer peers[PEERS];
};

#define MAP(name, kind, most, flags, key_type, value_type)	\
	struct {						\
		__uint(type, BPF_MAP_TYPE_##kind);		\
		__uint(max_entries, most);			\
		__uint(map_flags, flags);			\
		__type(key, key_type);				\
		__type(value, value_type);			\
	} name SEC(".maps")
#define SPARSE BPF_F_NO_PREALLOC

MAP(settings, ARRAY, 1, 0, __u32, struct settings);
MAP(devices, HASH, 8192, SPARSE, __u32, struct device);
MAP(flows, PERCPU_HASH, 1048576, SPARSE, struct flow_key, struct flow);
MAP(macs, HASH, 131072, SPARSE, struct mac_key, __u32);
MAP(reached, LRU_HASH, 65536, 0, struct mac_key, __u32);
MAP(fragments, LRU_HASH, 65536, 0, struct flow_key, struct fragment);
MAP(packets, PERCPU_ARRAY, 1, 0, __u32, struct packet);

static const __u32 zero;

/* Caches of one size each, whose look-up needs no call. */
#define CACHES(name, most, buckets)				\
	struct name##_cache {					\
		__uint(type, BPF_MAP_TYPE_ARRAY);		\
		__uint(max_entries, buckets);			\
		__uint(key_size, sizeof(__u32));		\
		__uint(value_size, sizeof(union bucket));	\
	};							\
	struct {						\
		__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);	\
		__uint(max_entries, most);			\
		__uint(map_flags, SPARSE);			\
		__type(key, __u32);				\
		__array(values, struct name##_cache);		\
	} name SEC(".maps")

CACHES(of_ports, 8192, PEERS_AT + (1 << PEERS_BITS));
CACHES(of_exits, 1024, 1 << EXIT_BITS);

static __always_inline __u32 now_s(void)
{
	return bpf_ktime_get_coarse_ns() / SECOND_NS + 1;
}

static __always_inline int is_recent(__u32 at_s, __u32 now, __u32 for_s)
{
	return at_s && now - at_s < for_s;
}

/* Whether an event may happen that has a rate, by the time that it is due. */
static __always_inline int may(__u64 *due_ns, __u32 per_s, __u32 burst)
{
	__u64 now = bpf_ktime_get_coarse_ns(), due = *due_ns;

	if (due < now)
		due = now;
	if (due - now > burst * (SECOND_NS / per_s))
		return 0;
	*due_ns = due + SECOND_NS / per_s;
	return 1;
}

static __always_inline int read_at(struct __sk_buff *skb, __u32 at, void *to,
				   __u32 bytes)
{
	return bpf_skb_load_bytes(skb, ETH_HLEN + at, to, bytes);
}

static __always_inline void read_ipv4(struct __sk_buff *skb,
				      struct packet *packet)
{
	struct iphdr *ip = (void *)(long)skb->data + ETH_HLEN;
	__u8 *l4 = (void *)(ip + 1);
	__u16 offset;

	if ((void *)l4 > (void *)(long)skb->data_end)
		return;
	packet->is_ip = 1;
	packet->key.source.words[0] = packet->key.target.words[0] = 0;
	packet->key.source.words[1] = MAPPED | (__u64)ip->saddr << 32;
	packet->key.target.words[1] = MAPPED | (__u64)ip->daddr << 32;
	packet->protocol = ip->protocol;
	packet->l4_at = ip->ihl * 4;
	packet->l3_bytes = bpf_ntohs(ip->tot_len);
	packet->id = ip->id;
	offset = bpf_ntohs(ip->frag_off);
	packet->is_later = (offset & 0x1fff) != 0;
	packet->is_first = (offset & 0x3fff) == 0x2000;
	if (ip->ihl != 5 || (void *)(l4 + 13) > (void *)(long)skb->data_end)
		return;
	packet->has_ports = 1;
	packet->port = *(__be16 *)(l4 + 2);
	packet->words = l4[12];
}

static __always_inline void read_ipv6(struct __sk_buff *skb,
				      struct packet *packet)
{
	struct ipv6hdr *ip = (void *)(long)skb->data + ETH_HLEN;
	__u32 at = sizeof(*ip);
	__u8 kind;

	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return;
	packet->is_ip = 1;
	__builtin_memcpy(&packet->key.source, &ip->saddr, 32);
	packet->l3_bytes = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	kind = ip->nexthdr;
#pragma unroll
	for (int place = 0; place < MOST_EXTENSIONS; place++) {
		if (kind != IPPROTO_HOPOPTS && kind != IPPROTO_ROUTING
		    && kind != IPPROTO_DSTOPTS && kind != IPPROTO_FRAGMENT)
			break;
		if (read_at(skb, at, &packet->extension, 8))
			break;
		at += 8;
		if (kind == IPPROTO_FRAGMENT) {
			__u16 offset = bpf_ntohs(packet->extension.offset);

			packet->id = packet->extension.id;
			packet->is_later = (offset & 0xfff8) != 0;
			packet->is_first = (offset & 0xfff9) == 1;
		} else {
			at += 8 * packet->extension.length;
		}
		kind = packet->extension.next;
		if (packet->is_later)
			break;
	}
	packet->protocol = kind;
	packet->l4_at = at;
}

/* Have the port of TCP or UDP; 0 where there is one. */
static __always_inline int read_port(struct __sk_buff *skb,
				     struct packet *packet)
{
	return !packet->has_ports
	       && read_at(skb, packet->l4_at + 2, &packet->port, 2);
}

/* Read the headers; a packet with less in it has no protocol. */
static __always_inline void read(struct __sk_buff *skb, struct packet *packet)
{
	packet->key.word = packet->protocol = packet->is_ip = 0;
	packet->is_first = packet->is_later = packet->is_without_data = 0;
	packet->has_ports = 0;
	packet->bytes = skb->len - ETH_HLEN;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		read_ipv4(skb, packet);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		read_ipv6(skb, packet);
	/* Who writes a short length into a long packet gains nothing. */
	if (packet->protocol == IPPROTO_TCP && !packet->is_later
	    && packet->bytes <= CONTROL_BYTES
	    && (packet->has_ports
		|| !read_at(skb, packet->l4_at + 12, &packet->words, 1)))
		packet->is_without_data = packet->l3_bytes
			== packet->l4_at + (packet->words >> 4) * 4;
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "addresses are put together from words");

/* An address as a number that is not 0. */
static __always_inline __u64 number_of(const __u8 *mac)
{
	return *(__u32 *)mac | (__u64)*(__u16 *)(mac + 4) << 32 | 1ull << 63;
}

static __always_inline int is_unicast(__u64 mac)
{
	return !(mac & 1);
}

/* Have the headers where they can be read in place. */
static __always_inline void pull(struct __sk_buff *skb, __u32 bytes)
{
	if ((void *)(long)skb->data + bytes > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, skb->len < bytes ? skb->len : bytes);
}

/* Begin with a packet; its device, 0 where that is not known. */
static __always_inline struct device *begin(struct __sk_buff *skb,
					    struct packet **found)
{
	struct packet *packet = bpf_map_lookup_elem(&packets, &zero);
	struct ethhdr *frame;

	pull(skb, ETH_HLEN + sizeof(struct iphdr));
	if (skb->protocol == bpf_htons(ETH_P_IPV6))
		pull(skb, ETH_HLEN + sizeof(struct ipv6hdr));
	frame = (void *)(long)skb->data;
	if (!packet || (void *)(frame + 1) > (void *)(long)skb->data_end)
		return 0;
	*found = packet;
	packet->key.ifindex = skb->ifindex;
	packet->to = number_of(frame->h_dest);
	packet->from = number_of(frame->h_source);
	return bpf_map_lookup_elem(&devices, &packet->key.ifindex);
}

static __always_inline union bucket *bucket_of(void *cache,
					       struct device *device,
					       struct packet *packet, __u32 at,
					       __u32 bits, __u64 one,
					       __u64 other)
{
	__u64 mixed = (one ^ device->seed) * 0x9e3779b97f4a7c15ull;

	mixed = (mixed ^ mixed >> 32 ^ other) * 0xc2b2ae3d27d4eb4full;
	packet->place = at + (mixed >> (64 - bits));
	return bpf_map_lookup_elem(cache, &packet->place);
}

/* Find a neighbour; where there is none, nobody, whose address is 0. */
static __always_inline struct neighbour *
find_neighbour(union bucket *bucket, struct packet *packet, __u64 mac)
{
	struct neighbour *one;

#pragma unroll
	for (int place = 0; place < NEIGHBOURS; place++) {
		one = &bucket->neighbours[place];
		KEPT(one);
		if (one->mac == mac) {
			if (one->used_s != packet->now)
				one->used_s = packet->now;
			return one;
		}
	}
	return &packet->nobody;
}

/* Find the neighbour that is unused for longest. */
static __always_inline struct neighbour *oldest_of(union bucket *bucket)
{
	struct neighbour *one, *oldest = bucket->neighbours;

#pragma unroll
	for (int place = 1; place < NEIGHBOURS; place++) {
		one = &bucket->neighbours[place];
		KEPT(one);
		if (one->used_s < oldest->used_s)
			oldest = one;
	}
	return oldest;
}

/* Add a neighbour if there is room. */
static __always_inline struct neighbour *
add_neighbour(union bucket *bucket, struct device *device,
	      struct packet *packet, __u32 bits, __u64 mac)
{
	struct neighbour *oldest = oldest_of(bucket);

	if (is_recent(oldest->used_s, packet->now, HELD_S)
	    || !(bits == PORT_BITS
		 ? may(&device->meeting_ns, PORT_MEETS_PER_S,
		       PORT_MEETS_AT_ONCE)
		 : may(&device->meeting_ns, EXIT_MEETS_PER_S,
		       EXIT_MEETS_AT_ONCE)))
		return &packet->nobody;
	oldest->mac = mac;
	oldest->used_s = packet->now;
	oldest->near_s = oldest->owed_s = oldest->reached_s = 0;
	return oldest;
}

static __always_inline struct mac_key *
key_of_mac(struct packet *packet, __u32 ifindex, enum mac_kind kind, __u64 mac)
{
	packet->mac.ifindex = ifindex;
	packet->mac.kind_and_mac[0] = kind | (__u32)mac << 16;
	packet->mac.kind_and_mac[1] = mac >> 16;
	return &packet->mac;
}

/* Note that the target was sent something, if new ones are not too many. */
static __always_inline int reach(struct device *device, struct packet *packet,
				 struct neighbour *target, __u32 per_s,
				 __u32 burst)
{
	if (!is_unicast(packet->to) || !may(&device->reaching_ns, per_s, burst))
		return 0;
	if (target->mac)
		target->reached_s = packet->now;
	bpf_map_update_elem(&reached, key_of_mac(
		packet, packet->key.ifindex, TO, packet->to), &packet->now,
		BPF_ANY);
	return 1;
}

/* A limited destination's class: the one of all devices, with a seat in it. */
static __always_inline __u32 limit_of(struct device *device,
				      struct packet *packet)
{
	__u32 *classid = bpf_map_lookup_elem(&macs, key_of_mac(
		packet, 0, TO, packet->to));

	return classid && *classid && device->others
	       ? *classid | (device->others & SEATS) : 0;
}

/* Whether limits by destination hold. */
static __always_inline int follows(void)
{
	struct settings *setting = bpf_map_lookup_elem(&settings, &zero);

	return setting && setting->follows;
}

/*
 * Whether a class may have packets to the target, which is near. Where the
 * policy tells the addresses of the class's receivers, no other VM of a host
 * with a limit is one. Another address may be a router's; the controller hears
 * of it, and gives a limit to its host.
 */
static __always_inline int is_peer(struct packet *packet,
				   struct device *device,
				   struct neighbour *target, __u32 classid)
{
	__u32 minor = classid & 0xffff, limit;

	if (bpf_map_lookup_elem(&macs, key_of_mac(packet, minor, PEER,
						  packet->to)))
		return 1;
	if (!bpf_map_lookup_elem(&macs, key_of_mac(packet, minor, PEER, 0)))
		return 1;
	limit = limit_of(device, packet);
	if (limit && (limit ^ device->others) & ~SEATS)
		return 0;
	return is_recent(target->reached_s, packet->now, REACHED_S)
	       || reach(device, packet, target, 96, 128) || !target->mac;
}

/* Look whether a target is near and a peer; see is_near(). */
static __noinline int look(struct packet *packet, struct device *device,
			   __u32 classid)
{
	struct neighbour *target;
	union bucket *bucket;
	void *cache;

	cache = bpf_map_lookup_elem(&of_ports, &packet->key.ifindex);
	if (!cache)
		return 1;
	packet->now = now_s();
	bucket = bucket_of(cache, device, packet, 0, PORT_BITS, packet->to, 0);
	if (!bucket)
		return 1;
	target = find_neighbour(bucket, packet, packet->to);
	if (!target->mac
	    && device->meeting_ns < bpf_ktime_get_coarse_ns() + SECOND_NS
	    && !is_recent(oldest_of(bucket)->used_s, packet->now, HELD_S))
		return 0;
	return is_peer(packet, device, target, classid);
}

/*
 * Whether the target ever sent the VM something, and may have packets of the
 * class. Switches flood packets to others to every host, and a coflow has its
 * rate towards one. A processor looks twice a second; between, a mark of the
 * target tells. Beside a flood of new addresses one may have found no place,
 * and has the benefit of the doubt.
 */
static __always_inline int is_near(struct packet *packet,
				   struct device *device, __u32 *classid,
				   __u32 *near_mark)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 mark = ((packet->to ^ device->seed) + (now >> 29))
		     * 0x9e3779b97f4a7c15ull >> 32;

	if (!(packet->entries & FOLLOWS) || *near_mark == mark)
		return 1;
	if (!look(packet, device, *classid))
		return 0;
	*near_mark = mark;
	return 1;
}

/* Find the class of a packet's entry, with its port first, and count it. */
static __noinline __u32 find_class(struct __sk_buff *skb,
				   struct packet *packet,
				   struct device *device)
{
	struct flow_key *key = &packet->key;
	struct fragment *fragment;
	struct flow *flow = 0;

	if (packet->entries & HAS_PORTS && packet->is_later) {
		/* It carries no port: it follows the first one. */
		key->word = packet->id;
		fragment = bpf_map_lookup_elem(&fragments, key);
		packet->near_mark = 0;
		if (fragment && is_recent(fragment->at_s, now_s(),
					  FRAGMENTED_S + 1))
			return is_near(packet, device, &fragment->classid,
				       &packet->near_mark)
			       ? fragment->classid : 0;
	} else if (packet->entries & HAS_PORTS
		   && (packet->protocol == IPPROTO_TCP
		       || packet->protocol == IPPROTO_UDP)
		   && !read_port(skb, packet)) {
		key->port = packet->port;
		key->protocol = packet->protocol;
		flow = bpf_map_lookup_elem(&flows, key);
		if (flow && packet->is_first
		    && may(&device->spare_ns, 1024, 1024)) {
			struct fragment made = {flow->classid, now_s()};

			key->word = packet->id;
			bpf_map_update_elem(&fragments, key, &made, BPF_ANY);
		}
	}
	if (!flow && packet->entries & HAS_PAIRS) {
		key->word = 0;
		flow = bpf_map_lookup_elem(&flows, key);
	}
	if (!flow)
		return 0;
	flow->bytes += packet->bytes;
	flow->packets++;
	return is_near(packet, device, &flow->classid, &flow->near_mark)
	       ? flow->classid : 0;
}

/* Put a packet of an entry into its class; 0 for one that is unmanaged. */
static __always_inline int classify(struct __sk_buff *skb,
				    struct packet *packet,
				    struct device *device)
{
	struct settings *setting = bpf_map_lookup_elem(&settings, &zero);
	__u32 classid;

	if (!packet->is_ip || !setting || !setting->entries)
		return 0;
	packet->entries = setting->entries | (setting->follows ? FOLLOWS : 0);
	classid = find_class(skb, packet, device);
	/* An entry of the port's own class only counts. */
	if (!classid || classid == device->own)
		return 0;
	skb->priority = packet->is_without_data && device->control
			? device->control : classid;
	return 1;
}

/* Count a packet of no entry by its target, if there is room for that. */
static __noinline int count_peer(void *cache, struct device *device,
				 struct packet *packet)
{
	__u64 first = packet->key.target.words[0];
	__u64 second = packet->key.target.words[1];
	struct peer *one, *oldest, *found = 0;
	__u32 now = packet->now;
	union bucket *bucket;

	if (!packet->is_ip)
		return 0;
	bucket = bucket_of(cache, device, packet, PEERS_AT, PEERS_BITS, first,
			   second);
	if (!bucket)
		return 0;
#pragma unroll
	for (int place = 0; place < PEERS; place++) {
		one = &bucket->peers[place];
		KEPT(one);
		if (one->address.words[1] == second
		    && one->address.words[0] == first) {
			found = one;
			break;
		}
	}
	if (!found) {
		oldest = bucket->peers;
#pragma unroll
		for (int place = 1; place < PEERS; place++) {
			one = &bucket->peers[place];
			KEPT(one);
			if (one->used_s < oldest->used_s)
				oldest = one;
		}
		if (is_recent(oldest->used_s, now, HELD_S))
			return 0;
		found = oldest;
		found->address = packet->key.target;
		found->bytes = found->packets = 0;
	}
	if (found->used_s != now)
		found->used_s = now;
	__sync_fetch_and_add(&found->bytes, packet->bytes);
	__sync_fetch_and_add(&found->packets, 1);
	return 0;
}

/* Put a packet of no entry into the class of its destination. */
static __noinline int put_unmanaged(struct __sk_buff *skb,
				    struct packet *packet,
				    struct device *device)
{
	void *cache = bpf_map_lookup_elem(&of_ports, &packet->key.ifindex);
	struct neighbour *target;
	union bucket *bucket;
	__u32 limit;

	if (!cache) {
		if (device->others)
			skb->priority = device->others;
		return 0;
	}
	packet->now = now_s();
	count_peer(cache, device, packet);
	bucket = bucket_of(cache, device, packet, 0, PORT_BITS, packet->to, 0);
	if (!bucket)
		return 0;
	target = find_neighbour(bucket, packet, packet->to);
	if (packet->is_without_data && device->control) {
		skb->priority = device->control;
		/* It acknowledges what came. */
		if (is_recent(target->owed_s, packet->now, OWED_S + 1))
			return 0;
	}
	if (!follows())
		return 0;
	/* Control packets to a limited host share its limit. */
	limit = limit_of(device, packet);
	if (limit)
		skb->priority = limit;
	else if (is_recent(target->reached_s, packet->now, REACHED_S))
		return 0;
	/*
	 * Switches may flood packets to everybody, or to an address that sent
	 * the VM nothing, and the controller cannot know whom they reach.
	 */
	if ((!is_recent(target->near_s, packet->now, NEAR_S)
	     || (!limit && !reach(device, packet, target, 96, 128)))
	    && device->others)
		skb->priority = device->others;
	return 0;
}

/* At the ingress of a VM's port. */
SEC("tc")
int from_vm(struct __sk_buff *skb)
{
	struct packet *packet;
	struct device *device = begin(skb, &packet);

	if (!device)
		return GOES_ON;
	/* A packet must not keep a priority that it brought. */
	skb->priority = device->own;
	read(skb, packet);
	if (!classify(skb, packet, device))
		put_unmanaged(skb, packet, device);
	return GOES_ON;
}

/* Note who sent something; nobody where there is no room. */
static __always_inline struct neighbour *
learn(void *cache, struct device *device, struct packet *packet, __u32 bits)
{
	struct neighbour *source;
	union bucket *bucket;

	packet->now = now_s();
	bucket = bucket_of(cache, device, packet, 0, bits, packet->from, 0);
	if (!bucket)
		return &packet->nobody;
	source = find_neighbour(bucket, packet, packet->from);
	if (!source->mac)
		source = add_neighbour(bucket, device, packet, bits,
				       packet->from);
	if (source->mac && source->near_s != packet->now)
		source->near_s = packet->now;
	return source;
}

/* At the egress of a VM's port: who sends to it is near. */
SEC("tc")
int to_vm(struct __sk_buff *skb)
{
	struct neighbour *source;
	struct device *device;
	struct packet *packet;
	__u32 ipv4, ipv6;
	void *cache;
	__u8 *l3;

	/*
	 * Packets of VMs of this host are in a class. Answers to them leave by
	 * no uplink, so that they need no place.
	 */
	if ((skb->priority & 0xffff0000) == ROOT_MAJOR)
		return GOES_ON;
	device = begin(skb, &packet);
	if (!device)
		return GOES_ON;
	cache = bpf_map_lookup_elem(&of_ports, &packet->key.ifindex);
	if (!cache)
		return GOES_ON;
	source = learn(cache, device, packet, PORT_BITS);
	packet->bytes = skb->len - ETH_HLEN;
	l3 = (void *)(long)skb->data + ETH_HLEN;
	if (packet->bytes <= CONTROL_BYTES
	    || (void *)(l3 + 10) > (void *)(long)skb->data_end)
		return GOES_ON;
	ipv4 = l3[9];
	KEPT(ipv4);
	ipv6 = l3[6];
	KEPT(ipv6);
	if (!(skb->protocol == bpf_htons(ETH_P_IP) && ipv4 == IPPROTO_TCP)
	    && !(skb->protocol == bpf_htons(ETH_P_IPV6)
		 && ipv6 == IPPROTO_TCP))
		return GOES_ON;
	if (source->mac && source->owed_s != packet->now)
		source->owed_s = packet->now;
	__sync_fetch_and_add(&device->received_bytes, packet->bytes);
	__sync_fetch_and_add(&device->received_packets, 1);
	return GOES_ON;
}

/* Open vSwitch watches its tunnels by short packets inside of them. */
static __always_inline int is_bfd(struct __sk_buff *skb, struct packet *packet)
{
	if (skb->len > BFD_BYTES + ETH_HLEN)
		return 0;
	read(skb, packet);
	return packet->protocol == IPPROTO_UDP && !packet->is_later
	       && !read_port(skb, packet)
	       && packet->port == bpf_htons(BFD_PORT);
}

/* Neutron tells its distributed routers whom they send to. */
static __always_inline int is_router(__u64 mac)
{
	return (mac & 0xffffff) == 0x3f16fa;
}

/* Put a packet of an unknown port into the class of its destination. */
static __noinline int put_unknown(struct __sk_buff *skb, struct packet *packet,
				  struct device *device)
{
	void *cache = bpf_map_lookup_elem(&of_exits, &packet->key.ifindex);
	__u32 is_routed, is_known, limit;
	struct neighbour *target;
	union bucket *bucket;

	if (!cache) {
		if (device->others)
			skb->priority = device->others;
		return 0;
	}
	packet->now = now_s();
	bucket = bucket_of(cache, device, packet, 0, EXIT_BITS, packet->to, 0);
	if (!bucket)
		return 0;
	is_routed = is_unicast(packet->to)
		    && (!device->learns || is_router(packet->from));
	target = find_neighbour(bucket, packet, packet->to);
	if (!target->mac && is_routed && follows())
		target = add_neighbour(bucket, device, packet, EXIT_BITS,
				       packet->to);
	is_known = is_routed || is_recent(target->near_s, packet->now, NEAR_S);
	if (is_known && !follows())
		return 0;
	limit = is_known ? limit_of(device, packet) : 0;
	if (limit)
		skb->priority = limit;
	else if (!(is_known && target->mac
		   && (is_recent(target->reached_s, packet->now, REACHED_S)
		       || reach(device, packet, target, 1024, 1024)))
		 && device->others)
		skb->priority = device->others;
	return 0;
}

/*
 * At the egress of an uplink or a tunnel: tells the host's packets from those
 * that came by unknown ports, which are limited by destination.
 */
SEC("tc")
int to_wire(struct __sk_buff *skb)
{
	struct device *device;
	struct packet *packet;
	__u32 *home;

	/* In a class already, also in one of another program. */
	if (skb->priority & 0xffff0000)
		return GOES_ON;
	device = begin(skb, &packet);
	if (!device)
		return GOES_ON;
	/* A packet that a device received is not the host's, whoever sent it. */
	home = skb->ingress_ifindex ? 0 : bpf_map_lookup_elem(
		&macs, key_of_mac(packet, packet->key.ifindex, HOME,
				  packet->from));
	if (home && *home) {
		skb->priority = *home;
		return GOES_ON;
	}
	if (is_bfd(skb, packet) && may(&device->spare_ns, 2000, 5))
		return GOES_ON;
	skb->priority = UNKNOWN;
	put_unknown(skb, packet, device);
	return GOES_ON;
}

/* At the ingress of an exit that shows who is near. */
SEC("tc")
int from_wire(struct __sk_buff *skb)
{
	struct packet *packet;
	struct device *device = begin(skb, &packet);
	void *cache;

	if (!device)
		return GOES_ON;
	cache = bpf_map_lookup_elem(&of_exits, &packet->key.ifindex);
	if (cache)
		learn(cache, device, packet, EXIT_BITS);
	return GOES_ON;
}

/*
 * At the egress of the uplink of a userspace datapath, whose packets pass no
 * hook of a port: by addresses alone.
 */
SEC("tc")
int by_address(struct __sk_buff *skb)
{
	struct packet *packet;
	struct device *device = begin(skb, &packet);

	if (device) {
		read(skb, packet);
		classify(skb, packet, device);
	}
	return GOES_ON;
}

char LICENSE[] SEC("license") = "Apache-2.0";
