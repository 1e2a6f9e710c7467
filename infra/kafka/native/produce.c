// Arrow columns → librdkafka's produce, and the reports of what was produced. infra/kafka/client/produce_native.py calls
// it and says what it is for; infra/kafka/client/lent_run.py owns the runs, and says how long they live.
//
// The object is a plugin of librdkafka, too: a client that has it in plugin.library.paths calls `conf_init`, by which
// each record's outcome is counted on the client's own threads, when it is known. A record of ours has the address of its
// run as opaque, with the lowest bit set: the opaque of the confluent_kafka package is an aligned address, or none. The
// count takes the opaque away, so that confluent_kafka finds a record without a callback when it serves the report.
#include "librdkafka.h"

#include <stdatomic.h>
#include <stdlib.h>

const char replicator_sources[] = SOURCES;

static void *(*produceva)(void *, const void *, size_t);
static int (*error_code)(const void *);
static int (*error_is_fatal)(const void *);
static void (*error_destroy)(void *);
static void *(*headers_new)(size_t);
static int (*header_add)(void *, const char *, ptrdiff_t, const void *, ptrdiff_t);
static void (*headers_destroy)(void *);
static void *(*topic_new)(void *, const char *, void *);
static void (*topic_destroy)(void *);
static int (*conf_interceptor_add_on_new)(void *, const char *, void *, void *);
static int (*interceptor_add_on_acknowledgement)(void *, const char *, void *, void *);

// `addresses`: of rd_kafka_ + the names above, in this order.
void replicator_produce_init(void **addresses) {
  produceva = addresses[0];
  error_code = addresses[1];
  error_is_fatal = addresses[2];
  error_destroy = addresses[3];
  headers_new = addresses[4];
  header_add = addresses[5];
  headers_destroy = addresses[6];
  topic_new = addresses[7];
  topic_destroy = addresses[8];
  conf_interceptor_add_on_new = addresses[9];
  interceptor_add_on_acknowledgement = addresses[10];
}

#define CODES 16
enum { OURS = 1, FIRST = 2, LAST = 4, ALIGNED = 64 };  // marks in the opaque, below the run's alignment

// What was queued of the records of a run, and what was reported. All but the lock are read by Python.
typedef struct {
  int64_t queued;  // by the thread that produces, which alone reads it
  _Atomic int64_t reported;  // records whose outcome is known; counted last, and then the run is not touched any more
  _Atomic int64_t acknowledged;
  _Atomic int64_t first_offset, last_offset;  // of the first and the last record; -1: not known
  _Atomic int32_t codes;                      // how many errors there are in `code`, each once, in the order of coming
  int32_t code[CODES];
  atomic_flag locked;  // adds to `code`
} run_t;

run_t *replicator_run_new(void) {
  run_t *run = aligned_alloc(ALIGNED, (sizeof(run_t) + ALIGNED - 1) / ALIGNED * ALIGNED);
  if (!run) return NULL;
  run->queued = 0;
  atomic_init(&run->reported, 0);
  atomic_init(&run->acknowledged, 0);
  atomic_init(&run->first_offset, -1);
  atomic_init(&run->last_offset, -1);
  atomic_init(&run->codes, 0);
  atomic_flag_clear(&run->locked);
  return run;
}

void replicator_run_free(run_t *run) { free(run); }

static void failed(run_t *run, int32_t code) {
  while (atomic_flag_test_and_set_explicit(&run->locked, memory_order_acquire)) {
  }
  int32_t count = atomic_load(&run->codes), i = 0;
  while (i < count && run->code[i] != code) i++;
  if (i == count && count < CODES) {
    run->code[count] = code;
    atomic_store(&run->codes, count + 1);
  }
  atomic_flag_clear_explicit(&run->locked, memory_order_release);
}

static _Thread_local int producing;  // a record that the client reports meanwhile on this thread is one it rejects

static int on_acknowledgement(void *rk, message_t *m, void *opaque) {
  (void)rk;
  (void)opaque;
  uintptr_t mark = (uintptr_t)m->opaque;
  if (!(mark & OURS)) return 0;
  m->opaque = NULL;
  if (producing) return 0;  // `produceva` returns the error
  run_t *run = (run_t *)(mark & ~(uintptr_t)(ALIGNED - 1));
  if (m->err) {
    failed(run, m->err);
  } else {
    int64_t offset = m->offset < 0 ? -1 : m->offset;
    if (mark & FIRST) atomic_store(&run->first_offset, offset);
    if (mark & LAST) atomic_store(&run->last_offset, offset);
    atomic_fetch_add(&run->acknowledged, 1);
  }
  atomic_fetch_add(&run->reported, 1);
  return 0;
}

static _Thread_local void *attached;  // the last client that was created on this thread and has our count

static int on_new(void *rk, const void *conf, void *opaque, char *error, size_t size) {
  (void)conf;
  (void)opaque;
  (void)error;
  (void)size;
  if (interceptor_add_on_acknowledgement(rk, "replicator", on_acknowledgement, NULL) == 0) attached = rk;
  return 0;
}

// The plugin's entry. Not 0 if it cannot work.
int conf_init(void *conf, void **opaque, char *error, size_t size) {
  (void)opaque;
  (void)error;
  (void)size;
  return conf_interceptor_add_on_new ? conf_interceptor_add_on_new(conf, "replicator", on_new, NULL) : 0;
}

void *replicator_attached(void) { return attached; }

// rd_kafka_vu_t
typedef struct {
  int type;
  union {
    int32_t partition;
    int flags;
    int64_t timestamp;
    void *address;
    struct {
      const void *data;
      size_t size;
    } bytes;
    char padding[64];
  } u;
} argument_t;

enum { TOPIC = 2, PARTITION = 3, VALUE = 4, KEY = 5, OPAQUE = 6, FLAGS = 7, TIMESTAMP = 8, HEADERS = 10 };

// Addresses of a batch's buffers, and where in a bitmap its first row is. A bitmap is NULL when nothing is null.
// `…_ends`: where each row begins, and where the last one ends. All but the bitmaps begin with the batch's first row.
typedef struct {
  const int64_t *timestamps;
  const uint8_t *key_valid;
  int64_t key_bit;
  const int32_t *key_ends;
  const uint8_t *key;
  const uint8_t *value_valid;
  int64_t value_bit;
  const int32_t *value_ends;
  const uint8_t *value;
  const uint8_t *headers_valid;
  int64_t headers_bit;
  const int32_t *headers_ends;  // NULL: no record has headers
  const int32_t *name_ends;
  const uint8_t *name;
  const uint8_t *header_valid;
  int64_t header_bit;
  const int32_t *header_ends;
  const uint8_t *header;
} columns_t;

static int is_valid(const uint8_t *bits, int64_t i) { return !bits || (bits[i >> 3] >> (i & 7) & 1); }

// Bytes of length 0 are not NULL, whatever the address of an empty buffer.
static const void *bytes_of(const uint8_t *data, const int32_t *ends, int64_t row) {
  return ends[row + 1] > ends[row] ? (const void *)(data + ends[row]) : "";
}

static argument_t bytes(int type, const uint8_t *valid, int64_t bit, const int32_t *ends, const uint8_t *data,
                        int64_t row) {
  argument_t a = {.type = type};
  if (is_valid(valid, bit + row)) {
    a.u.bytes.data = bytes_of(data, ends, row);
    a.u.bytes.size = ends[row + 1] - ends[row];
  }
  return a;
}

static int add_headers(const columns_t *c, int64_t row, void **headers) {
  *headers = NULL;
  if (!c->headers_ends || !is_valid(c->headers_valid, c->headers_bit + row)) return 0;
  int32_t begin = c->headers_ends[row], end = c->headers_ends[row + 1];
  if (begin == end) return 0;
  *headers = headers_new(end - begin);
  for (int32_t i = begin; i < end; i++) {
    int has_value = is_valid(c->header_valid, c->header_bit + i);
    int code = header_add(*headers, bytes_of(c->name, c->name_ends, i), c->name_ends[i + 1] - c->name_ends[i],
                          has_value ? bytes_of(c->header, c->header_ends, i) : NULL,
                          has_value ? c->header_ends[i + 1] - c->header_ends[i] : 0);
    if (code) return code;
  }
  return 0;
}

#define FATAL (-150)

// Queues the rows from `row` to before `end` in the client, in order. Returns the row that it does not take, and why in
// `code`; `end` if it takes all. `count`: records of the whole run. `flags`: 2 to copy the values; 0 to borrow them until
// they are reported. What is queued is counted here: an interrupt that Python handles right after the call would lose it.
int64_t replicator_produce(void *rk, const char *topic, int32_t partition, run_t *run, int64_t count, const columns_t *c,
                           int64_t row, int64_t end, int32_t flags, int32_t *code) {
  *code = 0;
  void *handle = topic_new(rk, topic, NULL);
  if (!handle) {
    *code = -186;  // _INVALID_ARG
    return row;
  }
  argument_t a[8] = {{.type = TOPIC, .u.address = handle},
                     {.type = PARTITION, .u.partition = partition},
                     {.type = FLAGS, .u.flags = flags}};
  for (; row < end; row++) {
    uintptr_t mark = (uintptr_t)run | OURS | (run->queued == 0 ? FIRST : 0) | (run->queued == count - 1 ? LAST : 0);
    a[3] = (argument_t){.type = OPAQUE, .u.address = (void *)mark};
    a[4] = (argument_t){.type = TIMESTAMP, .u.timestamp = c->timestamps[row]};
    a[5] = bytes(KEY, c->key_valid, c->key_bit, c->key_ends, c->key, row);
    a[6] = bytes(VALUE, c->value_valid, c->value_bit, c->value_ends, c->value, row);
    void *headers;
    if ((*code = add_headers(c, row, &headers)) == 0) {
      a[7] = (argument_t){.type = HEADERS, .u.address = headers};
      producing = 1;
      void *error = produceva(rk, a, headers ? 8 : 7);
      producing = 0;
      if (!error) {
        run->queued++;
        continue;
      }
      *code = error_is_fatal(error) ? FATAL : error_code(error);
      error_destroy(error);
    }
    if (headers) headers_destroy(headers);
    break;
  }
  topic_destroy(handle);
  return row;
}
