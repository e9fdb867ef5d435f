// SPDX-License-Identifier: Apache-2.0
//
// Provides DPDK's lookup structures as peers of the benchmarks. The benchmark's
// process (switch/crates/bench) loads this library with dlopen. `make bench-NAME`
// compiles the library if pkg-config finds libdpdk.
//
// Every structure has the same functions:
//   new      builds the structure; returns NULL if the entries do not fit
//   lookup   looks all keys up in bursts, by the lookup function that is selected;
//            returns a digest, so the compiler cannot remove the lookups
//   chain    looks keys up one at a time; each key depends on the previous result
//   values   returns the results of lookups, to compare structures; 0: no entry
//   free     frees the structure
// The caller measures the time. One thread, no locks, no I/O, no PCI.

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_acl.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_lpm.h>
#include <rte_lpm6.h>
#include <rte_malloc.h>
#include <rte_version.h>

#define API __attribute__((visibility("default")))
#define BURST 256u
#define HASH_BURST 64u
#define MOST_TBL8 (1u << 20)
#define PAGE (2ul << 20)

static int memory; // socket id of the heap that holds all structures
static unsigned serial;

// Returns a name that no other structure has. EAL registers structures by name.
static const char *fresh_name(void)
{
	static char name[16];
	snprintf(name, sizeof name, "peer%u", serial++);
	return name;
}

// Returns the value, and hides it from the compiler's optimiser.
static inline uint32_t opaque(uint32_t value)
{
	__asm__("" : "+r"(value));
	return value;
}

API const char *peer_version(void)
{
	return rte_version();
}

// Starts EAL on one processor and creates the structures' heap. The heap has `bytes` bytes, which
// EAL clears. Its pages are transparent huge pages if the kernel supports them.
API int peer_init(unsigned processor, size_t bytes)
{
	char cores[16];
	snprintf(cores, sizeof cores, "%u", processor);
	char *arguments[] = {
		"peers", "-l", cores, "-m", "128", "--no-huge", "--no-pci", "--no-shconf",
		"--no-telemetry", "--log-level", "error",
		"--force-max-simd-bitwidth", "512",
	};
	if (rte_eal_init(sizeof arguments / sizeof *arguments, arguments) < 0)
		return -rte_errno;

	bytes = RTE_ALIGN_CEIL(bytes, PAGE);
	char *area = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		return -errno;
	area = RTE_PTR_ALIGN_CEIL(area, PAGE);
	(void)madvise(area, bytes, MADV_HUGEPAGE); // if the kernel refuses, the pages are small
	if (rte_malloc_heap_create("peers") != 0 ||
	    rte_malloc_heap_memory_add("peers", area, bytes, NULL, bytes / PAGE, PAGE) != 0)
		return -rte_errno;
	memory = rte_malloc_heap_get_socket("peers");
	return memory < 0 ? -rte_errno : 0;
}

// ---- IPv4: rte_fib (DIR-24-8, two bytes per next hop, so at most 32767 next hops) ----

// Returns the processor ticks of one pass over the keys.
static uint64_t ticks(struct rte_fib *fib, const uint32_t *keys, size_t count)
{
	uint64_t results[BURST], start = __builtin_ia32_rdtsc();
	for (size_t at = 0; at + BURST <= count; at += BURST)
		rte_fib_lookup_bulk(fib, (uint32_t *)&keys[at], results, BURST);
	return __builtin_ia32_rdtsc() - start;
}

// Selects the lookup function that is fastest on this processor for these keys.
API int peer_fib4_tune(void *table, const uint32_t *keys, size_t count)
{
	const enum rte_fib_lookup_type types[] = {
		RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512, RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO,
		RTE_FIB_LOOKUP_DIR24_8_SCALAR_INLINE, RTE_FIB_LOOKUP_DIR24_8_SCALAR_UNI,
	};
	uint64_t least = UINT64_MAX;
	int best = RTE_FIB_LOOKUP_DEFAULT;
	for (size_t type = 0; type < RTE_DIM(types); type++) {
		if (rte_fib_select_lookup(table, types[type]) != 0)
			continue;
		for (int round = 0; round < 5; round++) {
			uint64_t took = ticks(table, keys, count);
			if (took < least) {
				least = took;
				best = types[type];
			}
		}
	}
	return rte_fib_select_lookup(table, best) == 0 ? best : -1;
}

API int peer_fib4_add(void *table, uint32_t address, uint8_t length, uint32_t value)
{
	return rte_fib_add(table, address, length, value);
}

API int peer_fib4_delete(void *table, uint32_t address, uint8_t length)
{
	return rte_fib_delete(table, address, length);
}

// `room` is the number of routes that will be added later.
API void *peer_fib4_new(const uint32_t *addresses, const uint8_t *lengths,
			const uint32_t *values, size_t count, size_t room)
{
	struct rte_fib_conf conf = {
		.type = RTE_FIB_DIR24_8,
		.default_nh = 0,
		.max_routes = (int)(count + room) + 1,
		.dir24_8 = {.nh_sz = RTE_FIB_DIR24_8_2B, .num_tbl8 = 32767},
	};
	struct rte_fib *fib = rte_fib_create(fresh_name(), memory, &conf);
	if (fib == NULL)
		return NULL;
	for (size_t at = 0; at < count; at++) {
		if (rte_fib_add(fib, addresses[at], lengths[at], values[at]) != 0) {
			rte_fib_free(fib);
			return NULL;
		}
	}
	return fib;
}

API void peer_fib4_free(void *table)
{
	rte_fib_free(table);
}

API uint64_t peer_fib4_lookup(void *table, const uint32_t *keys, size_t count)
{
	uint64_t results[BURST], digest = 0;
	for (size_t at = 0; at < count; at += BURST) {
		unsigned burst = RTE_MIN(count - at, BURST);
		rte_fib_lookup_bulk(table, (uint32_t *)&keys[at], results, burst);
		digest += results[burst - 1];
	}
	return digest;
}

API uint64_t peer_fib4_chain(void *table, const uint32_t *keys, size_t count)
{
	uint64_t result = 0, digest = 0;
	for (size_t at = 0; at < count; at++) {
		uint32_t key = keys[at] ^ opaque(result & 1);
		rte_fib_lookup_bulk(table, &key, &result, 1);
		digest += result;
	}
	return digest;
}

API void peer_fib4_values(void *table, const uint32_t *keys, size_t count, uint32_t *values)
{
	uint64_t result;
	for (size_t at = 0; at < count; at++) {
		rte_fib_lookup_bulk(table, (uint32_t *)&keys[at], &result, 1);
		values[at] = result;
	}
}

// ---- IPv4: rte_lpm (DIR-24-8, four bytes an entry) ----

// Writes the entries in the form in which rte_lpm_add leaves them. Precondition: the shortest
// prefixes come first. rte_lpm_add itself is not used: it compares each rule with all others of
// its length, which takes minutes for a full table. Lookups read only these entries.
static int lpm4_fill(struct rte_lpm *lpm, uint32_t groups, const uint32_t *addresses,
		     const uint8_t *lengths, const uint32_t *values, size_t count)
{
	uint32_t used = 0;
	for (size_t at = 0; at < count; at++) {
		struct rte_lpm_tbl_entry entry = {
			.next_hop = values[at], .valid = 1, .depth = lengths[at]};
		uint32_t first = addresses[at] >> 8;
		if (lengths[at] <= RTE_LPM_MAX_DEPTH - 8) {
			for (uint32_t slot = 0; slot < 1u << (24 - lengths[at]); slot++)
				lpm->tbl24[first + slot] = entry;
			continue;
		}
		struct rte_lpm_tbl_entry *outer = &lpm->tbl24[first];
		if (!outer->valid_group) {
			if (used == groups)
				return -ENOSPC;
			struct rte_lpm_tbl_entry inherited = *outer;
			inherited.valid_group = 1;
			for (uint32_t slot = 0; slot < 256; slot++)
				lpm->tbl8[used * 256 + slot] = inherited;
			*outer = (struct rte_lpm_tbl_entry){
				.next_hop = used++, .valid = 1, .valid_group = 1};
		}
		entry.valid_group = 1;
		uint32_t inner = outer->next_hop * 256 + (addresses[at] & 255);
		for (uint32_t slot = 0; slot < 1u << (32 - lengths[at]); slot++)
			lpm->tbl8[inner + slot] = entry;
	}
	return 0;
}

API void *peer_lpm4_new(const uint32_t *addresses, const uint8_t *lengths,
			const uint32_t *values, size_t count, size_t room)
{
	struct rte_lpm_config config = {.max_rules = 1024 + room, .number_tbl8s = 65536};
	struct rte_lpm *lpm = rte_lpm_create(fresh_name(), memory, &config);
	if (lpm != NULL &&
	    lpm4_fill(lpm, config.number_tbl8s, addresses, lengths, values, count) != 0) {
		rte_lpm_free(lpm);
		lpm = NULL;
	}
	return lpm;
}

API void peer_lpm4_free(void *table)
{
	rte_lpm_free(table);
}

// Looks up four keys at a time with the SIMD function rte_lpm_lookupx4.
API uint64_t peer_lpm4_lookup(void *table, const uint32_t *keys, size_t count)
{
	uint32_t results[BURST];
	uint64_t digest = 0;
	for (size_t at = 0; at + BURST <= count; at += BURST) {
		for (size_t four = 0; four < BURST; four += 4) {
			xmm_t burst = _mm_loadu_si128((const xmm_t *)&keys[at + four]);
			rte_lpm_lookupx4(table, burst, &results[four], 0);
		}
		__asm__ volatile("" : : "r"(results) : "memory");
		digest += results[BURST - 1];
	}
	return digest;
}

// Looks up whole bursts with rte_lpm_lookup_bulk, which is faster on some processors.
API uint64_t peer_lpm4_lookup_bulk(void *table, const uint32_t *keys, size_t count)
{
	uint32_t results[BURST];
	uint64_t digest = 0;
	for (size_t at = 0; at + BURST <= count; at += BURST) {
		rte_lpm_lookup_bulk(table, &keys[at], results, BURST);
		__asm__ volatile("" : : "r"(results) : "memory");
		digest += results[BURST - 1];
	}
	return digest;
}

API uint64_t peer_lpm4_chain(void *table, const uint32_t *keys, size_t count)
{
	uint32_t result = 0;
	uint64_t digest = 0;
	for (size_t at = 0; at < count; at++) {
		if (rte_lpm_lookup(table, keys[at] ^ opaque(result & 1), &result) != 0)
			result = 0;
		digest += result;
	}
	return digest;
}

API void peer_lpm4_values(void *table, const uint32_t *keys, size_t count, uint32_t *values)
{
	for (size_t at = 0; at < count; at++) {
		if (rte_lpm_lookup(table, keys[at], &values[at]) != 0)
			values[at] = 0;
	}
}

// ---- IPv6: addresses are 16 bytes in network order ----

typedef uint8_t address6[16];

// Flips the 64th bit of a key if the previous result is odd, so that a lookup cannot start before the
// previous one is complete. This bit is in the first half of the address, which every lookup reads. The
// key is copied in words, because a load that follows single-byte stores would stall.
static inline void key6(address6 key, const address6 from, uint32_t result)
{
	uint64_t halves[2];
	memcpy(halves, from, sizeof halves);
	halves[0] ^= (uint64_t)opaque(result & 1) << 56;
	memcpy(key, halves, sizeof halves);
}

// ---- IPv6: rte_fib6 (multibit trie) ----

static struct rte_fib6 *fib6_fill(enum rte_fib_trie_nh_sz size, uint32_t tbl8,
				  const address6 *addresses, const uint8_t *lengths,
				  const uint32_t *values, size_t count, size_t room, int *error)
{
	struct rte_fib6_conf conf = {
		.type = RTE_FIB6_TRIE,
		.default_nh = 0,
		.max_routes = (int)(count + room) + 1,
		.trie = {.nh_sz = size, .num_tbl8 = tbl8},
	};
	struct rte_fib6 *fib = rte_fib6_create(fresh_name(), memory, &conf);
	*error = fib == NULL ? -rte_errno : 0;
	for (size_t at = 0; *error == 0 && at < count; at++)
		*error = rte_fib6_add(fib, addresses[at], lengths[at], values[at]);
	if (*error != 0 && fib != NULL) {
		rte_fib6_free(fib);
		fib = NULL;
	}
	return fib;
}

// Uses two bytes for each next hop if the table fits, else four, with as few tbl8 groups as possible. If
// room for more routes is requested, uses four bytes, because a full table already needs all tbl8 groups
// that two bytes can number.
API void *peer_fib6_new(const address6 *addresses, const uint8_t *lengths,
			const uint32_t *values, size_t count, size_t room)
{
	int error = -ENOSPC;
	struct rte_fib6 *fib = NULL;
	if (room == 0)
		fib = fib6_fill(RTE_FIB6_TRIE_2B, 32767, addresses, lengths, values, count, room,
				&error);
	for (uint32_t tbl8 = 65536; fib == NULL && error == -ENOSPC && tbl8 <= MOST_TBL8;
	     tbl8 *= 2)
		fib = fib6_fill(RTE_FIB6_TRIE_4B, tbl8, addresses, lengths, values, count, room,
				&error);
	return fib;
}

API void peer_fib6_free(void *table)
{
	rte_fib6_free(table);
}

// Selects AVX-512 if the processor has it, else the scalar function.
API int peer_fib6_tune(void *table, const address6 *keys, size_t count)
{
	RTE_SET_USED(keys);
	RTE_SET_USED(count);
	if (rte_fib6_select_lookup(table, RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512) == 0)
		return RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512;
	return rte_fib6_select_lookup(table, RTE_FIB6_LOOKUP_TRIE_SCALAR) == 0
		       ? RTE_FIB6_LOOKUP_TRIE_SCALAR
		       : -1;
}

API int peer_fib6_add(void *table, const address6 address, uint8_t length, uint32_t value)
{
	return rte_fib6_add(table, address, length, value);
}

API int peer_fib6_delete(void *table, const address6 address, uint8_t length)
{
	return rte_fib6_delete(table, address, length);
}

API uint64_t peer_fib6_lookup(void *table, address6 *keys, size_t count)
{
	uint64_t results[BURST], digest = 0;
	for (size_t at = 0; at < count; at += BURST) {
		unsigned burst = RTE_MIN(count - at, BURST);
		rte_fib6_lookup_bulk(table, &keys[at], results, burst);
		digest += results[burst - 1];
	}
	return digest;
}

API uint64_t peer_fib6_chain(void *table, address6 *keys, size_t count)
{
	uint64_t result = 0, digest = 0;
	address6 key[1];
	for (size_t at = 0; at < count; at++) {
		key6(key[0], keys[at], result);
		rte_fib6_lookup_bulk(table, key, &result, 1);
		digest += result;
	}
	return digest;
}

API void peer_fib6_values(void *table, address6 *keys, size_t count, uint32_t *values)
{
	uint64_t result;
	for (size_t at = 0; at < count; at++) {
		rte_fib6_lookup_bulk(table, &keys[at], &result, 1);
		values[at] = result;
	}
}

// ---- IPv6: rte_lpm6 ----

static struct rte_lpm6 *lpm6_fill(uint32_t tbl8, const address6 *addresses,
				  const uint8_t *lengths, const uint32_t *values, size_t count,
				  size_t room, int *error)
{
	struct rte_lpm6_config config = {.max_rules = count + room + 1, .number_tbl8s = tbl8};
	struct rte_lpm6 *lpm = rte_lpm6_create(fresh_name(), memory, &config);
	*error = lpm == NULL ? -rte_errno : 0;
	for (size_t at = 0; *error == 0 && at < count; at++) {
		if (lengths[at] != 0) // rte_lpm6 has no default route
			*error = rte_lpm6_add(lpm, addresses[at], lengths[at], values[at]);
	}
	if (*error != 0 && lpm != NULL) {
		rte_lpm6_free(lpm);
		lpm = NULL;
	}
	return lpm;
}

API void *peer_lpm6_new(const address6 *addresses, const uint8_t *lengths,
			const uint32_t *values, size_t count, size_t room)
{
	struct rte_lpm6 *lpm = NULL;
	int error = -ENOSPC;
	for (uint32_t tbl8 = 65536; lpm == NULL && error == -ENOSPC && tbl8 <= MOST_TBL8;
	     tbl8 *= 2)
		lpm = lpm6_fill(tbl8, addresses, lengths, values, count, room, &error);
	return lpm;
}

API void peer_lpm6_free(void *table)
{
	rte_lpm6_free(table);
}

API uint64_t peer_lpm6_lookup(void *table, address6 *keys, size_t count)
{
	int32_t results[BURST];
	uint64_t digest = 0;
	for (size_t at = 0; at < count; at += BURST) {
		unsigned burst = RTE_MIN(count - at, BURST);
		rte_lpm6_lookup_bulk_func(table, &keys[at], results, burst);
		digest += results[burst - 1];
	}
	return digest;
}

API uint64_t peer_lpm6_chain(void *table, address6 *keys, size_t count)
{
	uint32_t result = 0;
	uint64_t digest = 0;
	address6 key;
	for (size_t at = 0; at < count; at++) {
		key6(key, keys[at], result);
		if (rte_lpm6_lookup(table, key, &result) != 0)
			result = 0;
		digest += result;
	}
	return digest;
}

API void peer_lpm6_values(void *table, address6 *keys, size_t count, uint32_t *values)
{
	for (size_t at = 0; at < count; at++) {
		if (rte_lpm6_lookup(table, keys[at], &values[at]) != 0)
			values[at] = 0;
	}
}

// ---- exact match: rte_hash. The value of a key is its position, as rte_hash returns it. ----

// The keys have `width` bytes each, without gaps. Writes the position of the n-th key to `positions[n]`.
API void *peer_hash_new(const uint8_t *keys, uint32_t width, uint32_t count, int32_t *positions)
{
	struct rte_hash_parameters parameters = {
		.name = fresh_name(),
		// The table is larger than the keys need, because buckets overflow above a load of 7/8.
		.entries = RTE_MAX(count + count / 7 + 8, 64u),
		.key_len = width,
		.hash_func = rte_hash_crc,
		.socket_id = memory,
	};
	struct rte_hash *hash = rte_hash_create(&parameters);
	for (size_t at = 0; hash != NULL && at < count; at++) {
		positions[at] = rte_hash_add_key(hash, &keys[at * width]);
		if (positions[at] < 0) {
			rte_hash_free(hash);
			hash = NULL;
		}
	}
	return hash;
}

API void peer_hash_free(void *table)
{
	rte_hash_free(table);
}

API uint64_t peer_hash_lookup(void *table, const uint8_t *keys, uint32_t width, size_t count)
{
	const void *burst[HASH_BURST];
	int32_t positions[HASH_BURST];
	uint64_t digest = 0;
	for (size_t at = 0; at < count; at += HASH_BURST) {
		unsigned size = RTE_MIN(count - at, HASH_BURST);
		for (unsigned key = 0; key < size; key++)
			burst[key] = &keys[(at + key) * width];
		rte_hash_lookup_bulk(table, burst, size, positions);
		digest += positions[size - 1];
	}
	return digest;
}

// Each step takes one of the next two keys of the list. The lowest bit of the previous result selects
// which one.
API uint64_t peer_hash_chain(void *table, const uint8_t *keys, uint32_t width, size_t count)
{
	uint64_t digest = 0;
	int32_t position = 0;
	for (size_t step = 0; step < count / 2; step++) {
		size_t at = 2 * step + opaque(position & 1);
		position = rte_hash_lookup(table, &keys[at * width]);
		digest += position;
	}
	return digest;
}

API void peer_hash_values(void *table, const uint8_t *keys, uint32_t width, size_t count,
			  int32_t *positions)
{
	for (size_t at = 0; at < count; at++)
		positions[at] = rte_hash_lookup(table, &keys[at * width]);
}

// ---- rules: rte_acl ----

// Holds a 5-tuple in network byte order, as in a packet: protocol, addresses, ports.
struct peer_tuple {
	uint8_t protocol, unused[3];
	uint32_t source, destination;
	uint16_t source_port, destination_port;
};

// Holds a rule in host byte order.
struct peer_rule {
	uint32_t source, destination;
	uint16_t source_port[2], destination_port[2]; // first and last
	uint8_t source_length, destination_length, protocol, protocol_mask;
	uint32_t priority; // the rule with the largest number wins
	uint32_t value;
};

RTE_ACL_RULE_DEF(peer_acl_rule, 5);

#define FIELD(KIND, SIZE, NUMBER, INPUT, MEMBER)                                               \
	{.type = RTE_ACL_FIELD_TYPE_##KIND, .size = SIZE, .field_index = NUMBER,               \
	 .input_index = INPUT, .offset = offsetof(struct peer_tuple, MEMBER)}

static const struct rte_acl_field_def acl_fields[] = {
	FIELD(BITMASK, 1, 0, 0, protocol),	 FIELD(MASK, 4, 1, 1, source),
	FIELD(MASK, 4, 2, 2, destination),	 FIELD(RANGE, 2, 3, 3, source_port),
	FIELD(RANGE, 2, 4, 3, destination_port),
};

static struct peer_acl_rule acl_rule(const struct peer_rule *rule)
{
	struct peer_acl_rule acl = {
		.data = {.category_mask = 1, .priority = rule->priority, .userdata = rule->value}};
	acl.field[0].value.u8 = rule->protocol;
	acl.field[0].mask_range.u8 = rule->protocol_mask;
	acl.field[1].value.u32 = rule->source;
	acl.field[1].mask_range.u32 = rule->source_length;
	acl.field[2].value.u32 = rule->destination;
	acl.field[2].mask_range.u32 = rule->destination_length;
	acl.field[3].value.u16 = rule->source_port[0];
	acl.field[3].mask_range.u16 = rule->source_port[1];
	acl.field[4].value.u16 = rule->destination_port[0];
	acl.field[4].mask_range.u16 = rule->destination_port[1];
	return acl;
}

// `most` is the limit of the run-time structures, in bytes; 0 means no limit.
API void *peer_acl_new(const struct peer_rule *rules, uint32_t count, size_t most)
{
	struct rte_acl_param parameters = {
		.name = fresh_name(),
		.socket_id = memory,
		.rule_size = RTE_ACL_RULE_SZ(5),
		.max_rule_num = count,
	};
	struct rte_acl_ctx *acl = rte_acl_create(&parameters);
	if (acl == NULL)
		return NULL;
	struct rte_acl_config config = {.num_categories = 1, .num_fields = 5, .max_size = most};
	memcpy(config.defs, acl_fields, sizeof acl_fields);
	bool good = true;
	for (uint32_t at = 0; good && at < count; at++) {
		struct peer_acl_rule rule = acl_rule(&rules[at]);
		good = rte_acl_add_rules(acl, (const struct rte_acl_rule *)&rule, 1) == 0;
	}
	if (!good || rte_acl_build(acl, &config) != 0) {
		rte_acl_free(acl);
		return NULL;
	}
	return acl;
}

API void peer_acl_free(void *table)
{
	rte_acl_free(table);
}

API uint64_t peer_acl_lookup(void *table, const struct peer_tuple *keys, size_t count)
{
	const uint8_t *burst[BURST];
	uint32_t results[BURST];
	uint64_t digest = 0;
	for (size_t at = 0; at < count; at += BURST) {
		unsigned size = RTE_MIN(count - at, BURST);
		for (unsigned key = 0; key < size; key++)
			burst[key] = (const uint8_t *)&keys[at + key];
		rte_acl_classify(table, burst, results, size, 1);
		digest += results[size - 1];
	}
	return digest;
}

// Selects the implementation that is fastest for these keys, and returns its number. The fastest one
// is not always the one with the widest instructions.
API int peer_acl_tune(void *table, const struct peer_tuple *keys, size_t count)
{
	const enum rte_acl_classify_alg all[] = {
		RTE_ACL_CLASSIFY_AVX512X32, RTE_ACL_CLASSIFY_AVX512X16, RTE_ACL_CLASSIFY_AVX2,
		RTE_ACL_CLASSIFY_SSE, RTE_ACL_CLASSIFY_SCALAR,
	};
	uint64_t least = UINT64_MAX;
	int best = RTE_ACL_CLASSIFY_DEFAULT;
	for (size_t at = 0; at < RTE_DIM(all); at++) {
		if (rte_acl_set_ctx_classify(table, all[at]) != 0)
			continue;
		for (int round = 0; round < 5; round++) {
			uint64_t start = __builtin_ia32_rdtsc();
			peer_acl_lookup(table, keys, count);
			uint64_t took = __builtin_ia32_rdtsc() - start;
			if (took < least) {
				least = took;
				best = all[at];
			}
		}
	}
	return rte_acl_set_ctx_classify(table, best) == 0 ? best : -1;
}

API void peer_acl_values(void *table, const struct peer_tuple *keys, size_t count,
			 uint32_t *values)
{
	for (size_t at = 0; at < count; at++) {
		const uint8_t *key = (const uint8_t *)&keys[at];
		rte_acl_classify(table, &key, &values[at], 1, 1);
	}
}
