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

enum mac_kind { TO, HOME };

/* Kinds of flow entries that there are. */
#define HAS_PORTS 1
#define HAS_PAIRS 2

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
	__u8 bytes[16];
};

struct flow_key {
	__u32 ifindex;
	__be16 port;
	__u8 protocol;
	__u8 pad;
	struct address source;
	struct address target;
};

struct flow {
	__u32 classid;
	__u32 pad;
	__u64 bytes;
	__u64 packets;
};

struct mac_key {
	__u32 ifindex;
	__u16 kind;
	__u8 mac[ETH_ALEN];
};

struct fragment_key {
	__u32 ifindex;
	__u32 id;
	struct address source;
	struct address target;
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
	__u64 address[2];
	__u32 used_s;
	__u32 pad;
	__u64 pad2;
	__u64 bytes;
	__u64 packets;
};

union bucket {
	struct neighbour neighbours[NEIGHBOURS];
	struct peer peers[PEERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct device);
} devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1048576);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 131072);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct mac_key);
	__type(value, __u32);
} macs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct mac_key);
	__type(value, __u32);
} reached SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct fragment_key);
	__type(value, struct fragment);
} fragments SEC(".maps");

/* Caches of one size each, whose look-up needs no call. */
struct port_cache {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PEERS_AT + (1 << PEERS_BITS));
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(union bucket));
};

struct exit_cache {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << EXIT_BITS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(union bucket));
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 8192);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__array(values, struct port_cache);
} of_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__array(values, struct exit_cache);
} of_exits SEC(".maps");

/* What a packet's headers say. */
struct packet {
	struct flow_key key;	/* without a port */
	__u32 bytes;		/* after the frame's header */
	__u32 id;		/* of the datagram, where it is a fragment */
	__u16 l4_at;		/* after the frame's header */
	__u16 l3_bytes;		/* by the header; 0: not known */
	__u8 is_ip;
	__u8 is_first;		/* of several fragments */
	__u8 is_later;
	__u8 is_without_data;
};

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

static __always_inline void map_ipv4(struct address *to, __be32 from)
{
	*(__u64 *)to->bytes = 0;
	*(__u32 *)(to->bytes + 8) = bpf_htonl(0xffff);
	*(__u32 *)(to->bytes + 12) = from;
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
	__u16 offset;

	if ((void *)(ip + 1) > (void *)(long)skb->data_end)
		return;
	packet->is_ip = 1;
	map_ipv4(&packet->key.source, ip->saddr);
	map_ipv4(&packet->key.target, ip->daddr);
	packet->key.protocol = ip->protocol;
	packet->l4_at = ip->ihl * 4;
	packet->l3_bytes = bpf_ntohs(ip->tot_len);
	packet->id = ip->id;
	offset = bpf_ntohs(ip->frag_off);
	packet->is_later = (offset & 0x1fff) != 0;
	packet->is_first = (offset & 0x3fff) == 0x2000;
}

static __always_inline void read_ipv6(struct __sk_buff *skb,
				      struct packet *packet)
{
	struct {
		__u8 next;
		__u8 length;
		__be16 offset;
		__u32 id;
	} more;
	struct ipv6hdr ip;
	__u32 at = sizeof(ip);

	if (read_at(skb, 0, &ip, sizeof(ip)))
		return;
	packet->is_ip = 1;
	__builtin_memcpy(&packet->key.source, &ip.saddr, 16);
	__builtin_memcpy(&packet->key.target, &ip.daddr, 16);
	packet->l3_bytes = bpf_ntohs(ip.payload_len) + sizeof(ip);
	packet->key.protocol = ip.nexthdr;
	for (int place = 0; place < MOST_EXTENSIONS; place++) {
		__u8 kind = packet->key.protocol;

		if (kind != IPPROTO_HOPOPTS && kind != IPPROTO_ROUTING
		    && kind != IPPROTO_DSTOPTS && kind != IPPROTO_FRAGMENT)
			break;
		if (read_at(skb, at, &more, sizeof(more)))
			break;
		packet->key.protocol = more.next;
		if (kind != IPPROTO_FRAGMENT) {
			at += 8 * (more.length + 1);
			continue;
		}
		at += 8;
		packet->id = more.id;
		packet->is_later = (more.offset & bpf_htons(0xfff8)) != 0;
		packet->is_first = (more.offset & bpf_htons(0xfff9))
				   == bpf_htons(1);
		if (packet->is_later)
			break;
	}
	packet->l4_at = at;
}

/* Read the headers; a packet with less in it has zeros. */
static __always_inline void read(struct __sk_buff *skb, struct packet *packet)
{
	__u8 words;

	packet->key.ifindex = skb->ifindex;
	packet->bytes = skb->len - ETH_HLEN;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		read_ipv4(skb, packet);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		read_ipv6(skb, packet);
	/* Who writes a short length into a long packet gains nothing. */
	if (packet->key.protocol == IPPROTO_TCP && !packet->is_later
	    && packet->bytes <= CONTROL_BYTES
	    && !read_at(skb, packet->l4_at + 12, &words, 1))
		packet->is_without_data =
			packet->l3_bytes == packet->l4_at + (words >> 4) * 4;
}

/* Have the headers up to IPv4's where they can be read in place. */
static __always_inline void pull(struct __sk_buff *skb)
{
	__u32 bytes = ETH_HLEN + sizeof(struct iphdr);

	if ((void *)(long)skb->data + bytes > (void *)(long)skb->data_end)
		bpf_skb_pull_data(skb, skb->len < bytes ? skb->len : bytes);
}

/* An address as a number that is not 0. */
static __always_inline __u64 number_of(const __u8 *mac)
{
	__u64 number = 0;

	__builtin_memcpy(&number, mac, ETH_ALEN);
	return number | 1ull << 63;
}

static __always_inline int is_unicast(const __u8 *mac)
{
	return !(mac[0] & 1);
}

static __always_inline union bucket *bucket_of(void *cache, __u32 at,
					       __u32 bits, __u64 one,
					       __u64 other)
{
	__u64 mixed = one * 0x9e3779b97f4a7c15ull;
	__u32 place;

	mixed = (mixed ^ mixed >> 32 ^ other) * 0xc2b2ae3d27d4eb4full;
	place = at + (mixed >> (64 - bits));
	return cache ? bpf_map_lookup_elem(cache, &place) : 0;
}

/*
 * Keeps clang from adding a product to a pointer later, which the kernel
 * refuses from those who may not see its memory (CAP_PERFMON).
 */
#define KEPT(pointer) asm volatile("" : "+r"(pointer))

/* Find a neighbour; add it if there is room. */
static __always_inline struct neighbour *
find_neighbour(void *cache, struct device *device, __u32 bits, __u64 mac,
	       __u32 now, int do_add)
{
	union bucket *bucket = bucket_of(cache, 0, bits, mac ^ device->seed, 0);
	struct neighbour *one, *oldest;

	if (!bucket)
		return 0;
	oldest = bucket->neighbours;
#pragma unroll
	for (int place = 0; place < NEIGHBOURS; place++) {
		one = &bucket->neighbours[place];
		KEPT(one);
		if (one->mac == mac) {
			if (one->used_s != now)
				one->used_s = now;
			return one;
		}
		if (one->used_s < oldest->used_s)
			oldest = one;
	}
	if (!do_add || is_recent(oldest->used_s, now, HELD_S)
	    || !(bits == PORT_BITS
		 ? may(&device->meeting_ns, PORT_MEETS_PER_S,
		       PORT_MEETS_AT_ONCE)
		 : may(&device->meeting_ns, EXIT_MEETS_PER_S,
		       EXIT_MEETS_AT_ONCE)))
		return 0;
	oldest->mac = mac;
	oldest->used_s = now;
	oldest->near_s = oldest->owed_s = oldest->reached_s = 0;
	return oldest;
}

/* Note that an address was sent something, if new ones are not too many. */
static __always_inline int reach(struct device *device, __u32 ifindex,
				 struct neighbour *target, const __u8 *mac,
				 __u32 now, __u32 per_s, __u32 burst)
{
	struct mac_key key = {ifindex};

	if (!is_unicast(mac) || !may(&device->reaching_ns, per_s, burst))
		return 0;
	target->reached_s = now;
	__builtin_memcpy(key.mac, mac, ETH_ALEN);
	bpf_map_update_elem(&reached, &key, &now, BPF_ANY);
	return 1;
}

static __always_inline __u32 class_of_mac(__u32 ifindex, enum mac_kind kind,
					  const __u8 *mac)
{
	struct mac_key key = {ifindex, kind};
	__u32 *classid;

	__builtin_memcpy(key.mac, mac, ETH_ALEN);
	classid = bpf_map_lookup_elem(&macs, &key);
	return classid ? *classid : 0;
}

/* A limited destination's class: the one of all devices, with a seat in it. */
static __always_inline __u32 limit_of(struct device *device, const __u8 *mac)
{
	__u32 classid = class_of_mac(0, TO, mac);

	return classid && device->others
	       ? classid | (device->others & SEATS) : 0;
}

/* Find the entry of a packet: with its port first, then without. */
static __always_inline struct flow *find_flow(struct __sk_buff *skb,
					      struct packet *packet,
					      struct device *device,
					      __u32 entries, __u32 *follows)
{
	__u8 protocol = packet->key.protocol;
	struct fragment_key whole = {};
	struct fragment *fragment;
	struct flow *flow = 0;

	if (packet->is_first || packet->is_later) {
		whole.ifindex = packet->key.ifindex;
		whole.id = packet->id;
		whole.source = packet->key.source;
		whole.target = packet->key.target;
	}
	if (entries & HAS_PORTS && packet->is_later) {
		/* It carries no port: it follows the first one. */
		fragment = bpf_map_lookup_elem(&fragments, &whole);
		if (fragment && is_recent(fragment->at_s, now_s(),
					  FRAGMENTED_S + 1)) {
			*follows = fragment->classid;
			return 0;
		}
	} else if (entries & HAS_PORTS && (protocol == IPPROTO_TCP
					   || protocol == IPPROTO_UDP)) {
		if (!read_at(skb, packet->l4_at + 2, &packet->key.port, 2))
			flow = bpf_map_lookup_elem(&flows, &packet->key);
		if (flow && packet->is_first
		    && may(&device->spare_ns, 1024, 1024)) {
			struct fragment made = {flow->classid, now_s()};

			bpf_map_update_elem(&fragments, &whole, &made,
					    BPF_ANY);
		}
	}
	if (!flow && entries & HAS_PAIRS) {
		packet->key.port = 0;
		packet->key.protocol = 0;
		flow = bpf_map_lookup_elem(&flows, &packet->key);
		packet->key.protocol = protocol;
	}
	return flow;
}

/* Put a packet of an entry into its class; 0 for one that is unmanaged. */
static __always_inline int classify(struct __sk_buff *skb,
				    struct packet *packet,
				    struct device *device, __u32 entries)
{
	__u32 classid = 0;
	struct flow *flow;

	if (!packet->is_ip || !entries)
		return 0;
	flow = find_flow(skb, packet, device, entries, &classid);
	if (flow) {
		classid = flow->classid;
		flow->bytes += packet->bytes;
		flow->packets++;
	}
	/* An entry of the port's own class only counts. */
	if (!classid || classid == device->own)
		return 0;
	skb->priority = packet->is_without_data && device->control
			? device->control : classid;
	return 1;
}

/* Count a packet of no entry by its target, if there is room for that. */
static __always_inline void count_peer(void *cache, struct device *device,
				       struct packet *packet, __u32 now)
{
	const __u64 *address = (const __u64 *)packet->key.target.bytes;
	struct peer *one, *oldest, *found = 0;
	union bucket *bucket;

	if (!packet->is_ip)
		return;
	bucket = bucket_of(cache, PEERS_AT, PEERS_BITS,
			   address[0] ^ device->seed, address[1]);
	if (!bucket)
		return;
	oldest = bucket->peers;
#pragma unroll
	for (int place = 0; place < PEERS; place++) {
		one = &bucket->peers[place];
		KEPT(one);
		if (one->address[1] == address[1]
		    && one->address[0] == address[0]) {
			found = one;
			break;
		}
		if (one->used_s < oldest->used_s)
			oldest = one;
	}
	if (!found) {
		if (is_recent(oldest->used_s, now, HELD_S))
			return;
		found = oldest;
		found->address[0] = address[0];
		found->address[1] = address[1];
		found->bytes = found->packets = 0;
	}
	if (found->used_s != now)
		found->used_s = now;
	__sync_fetch_and_add(&found->bytes, packet->bytes);
	__sync_fetch_and_add(&found->packets, 1);
}

/* At the ingress of a VM's port. */
SEC("tc")
int from_vm(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, zero = 0, limit = 0, now;
	struct packet packet = {};
	struct settings *setting;
	struct device *device;
	struct neighbour *target;
	__u8 mac[ETH_ALEN];
	struct ethhdr *frame;
	void *cache;

	device = bpf_map_lookup_elem(&devices, &ifindex);
	setting = bpf_map_lookup_elem(&settings, &zero);
	if (!device || !setting)
		return GOES_ON;
	pull(skb);
	frame = (void *)(long)skb->data;
	if ((void *)(frame + 1) > (void *)(long)skb->data_end)
		return GOES_ON;
	__builtin_memcpy(mac, frame->h_dest, ETH_ALEN);
	/* A packet must not keep a priority that it brought. */
	skb->priority = device->own;
	read(skb, &packet);
	if (classify(skb, &packet, device, setting->entries))
		return GOES_ON;
	now = now_s();
	cache = bpf_map_lookup_elem(&of_ports, &ifindex);
	count_peer(cache, device, &packet, now);
	target = find_neighbour(cache, device, PORT_BITS, number_of(mac), now,
				0);
	if (packet.is_without_data && device->control) {
		skb->priority = device->control;
		/* It acknowledges what came. */
		if (target && is_recent(target->owed_s, now, OWED_S + 1))
			return GOES_ON;
	}
	if (!setting->follows)
		return GOES_ON;
	/* Control packets to a limited host share its limit. */
	limit = limit_of(device, mac);
	if (limit)
		skb->priority = limit;
	else if (target && is_recent(target->reached_s, now, REACHED_S))
		return GOES_ON;
	/*
	 * Switches may flood packets to everybody, or to an address that sent
	 * the VM nothing, and the controller cannot know whom they reach.
	 */
	if (!target || !is_recent(target->near_s, now, NEAR_S)) {
		if (device->others)
			skb->priority = device->others;
	} else if (!limit && !reach(device, ifindex, target, mac, now, 96, 128)
		   && device->others) {
		skb->priority = device->others;
	}
	return GOES_ON;
}

static __always_inline struct neighbour *learn(void *cache,
					       struct device *device,
					       __u32 bits, const __u8 *mac,
					       __u32 now)
{
	struct neighbour *source = find_neighbour(cache, device, bits,
						  number_of(mac), now, 1);

	if (source && source->near_s != now)
		source->near_s = now;
	return source;
}

/* At the egress of a VM's port: who sends to it is near. */
SEC("tc")
int to_vm(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, bytes = skb->len - ETH_HLEN;
	__u8 mac[ETH_ALEN], protocol = 0;
	struct device *device;
	struct neighbour *source;
	__u32 now = now_s();

	/*
	 * Packets of VMs of this host are in a class. Answers to them leave by
	 * no uplink, so that they need no place.
	 */
	if ((skb->priority & 0xffff0000) == ROOT_MAJOR)
		return GOES_ON;
	device = bpf_map_lookup_elem(&devices, &ifindex);
	if (!device || bpf_skb_load_bytes(skb, ETH_ALEN, mac, sizeof(mac)))
		return GOES_ON;
	source = learn(bpf_map_lookup_elem(&of_ports, &ifindex), device, PORT_BITS,
		       mac, now);
	if (bytes <= CONTROL_BYTES)
		return GOES_ON;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		read_at(skb, 9, &protocol, 1);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		read_at(skb, 6, &protocol, 1);
	if (protocol != IPPROTO_TCP)
		return GOES_ON;
	if (source && source->owed_s != now)
		source->owed_s = now;
	__sync_fetch_and_add(&device->received_bytes, bytes);
	__sync_fetch_and_add(&device->received_packets, 1);
	return GOES_ON;
}

/* Open vSwitch watches its tunnels by short packets inside of them. */
static __always_inline int is_bfd(struct __sk_buff *skb)
{
	struct packet packet = {};
	__be16 port = 0;

	if (skb->len > BFD_BYTES + ETH_HLEN)
		return 0;
	pull(skb);
	read(skb, &packet);
	return packet.key.protocol == IPPROTO_UDP && !packet.is_later
	       && !read_at(skb, packet.l4_at + 2, &port, 2)
	       && port == bpf_htons(BFD_PORT);
}

/* Neutron tells its distributed routers whom they send to. */
static __always_inline int is_router(const __u8 *mac)
{
	return mac[0] == 0xfa && mac[1] == 0x16 && mac[2] == 0x3f;
}

/*
 * At the egress of an uplink or a tunnel: tells the host's packets from those
 * that came by unknown ports, which are limited by destination.
 */
SEC("tc")
int to_wire(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, zero = 0, now = now_s(), classid;
	struct settings *setting;
	struct device *device;
	struct ethhdr frame;
	struct neighbour *target;
	int is_routed, may_add;

	/* In a class already, also in one of another program. */
	if (skb->priority & 0xffff0000)
		return GOES_ON;
	device = bpf_map_lookup_elem(&devices, &ifindex);
	setting = bpf_map_lookup_elem(&settings, &zero);
	if (!device || !setting
	    || bpf_skb_load_bytes(skb, 0, &frame, sizeof(frame)))
		return GOES_ON;
	classid = class_of_mac(ifindex, HOME, frame.h_source);
	if (classid) {
		skb->priority = classid;
		return GOES_ON;
	}
	if (is_bfd(skb) && may(&device->spare_ns, 2000, 5))
		return GOES_ON;
	skb->priority = UNKNOWN;
	is_routed = is_unicast(frame.h_dest)
		    && (!device->learns || is_router(frame.h_source));
	target = find_neighbour(bpf_map_lookup_elem(&of_exits, &ifindex),
				device, EXIT_BITS, number_of(frame.h_dest),
				now, is_routed && setting->follows);
	if (!is_routed && (!target
			   || !is_recent(target->near_s, now, NEAR_S))) {
		if (device->others)
			skb->priority = device->others;
		return GOES_ON;
	}
	if (!setting->follows)
		return GOES_ON;
	classid = limit_of(device, frame.h_dest);
	may_add = 0;
	if (classid)
		skb->priority = classid;
	else if (target)
		may_add = is_recent(target->reached_s, now, REACHED_S)
			  || reach(device, ifindex, target, frame.h_dest, now,
				   1024, 1024);
	if (!classid && !may_add && device->others)
		skb->priority = device->others;
	return GOES_ON;
}

/* At the ingress of an exit that shows who is near. */
SEC("tc")
int from_wire(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct device *device;
	__u8 mac[ETH_ALEN];

	device = bpf_map_lookup_elem(&devices, &ifindex);
	if (device && !bpf_skb_load_bytes(skb, ETH_ALEN, mac, sizeof(mac)))
		learn(bpf_map_lookup_elem(&of_exits, &ifindex), device,
		      EXIT_BITS, mac, now_s());
	return GOES_ON;
}

/*
 * At the egress of the uplink of a userspace datapath, whose packets pass no
 * hook of a port: by addresses alone.
 */
SEC("tc")
int by_address(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, zero = 0;
	struct packet packet = {};
	struct settings *setting;
	struct device *device;

	device = bpf_map_lookup_elem(&devices, &ifindex);
	setting = bpf_map_lookup_elem(&settings, &zero);
	if (device && setting) {
		pull(skb);
		read(skb, &packet);
		classify(skb, &packet, device, setting->entries);
	}
	return GOES_ON;
}

char LICENSE[] SEC("license") = "Apache-2.0";
