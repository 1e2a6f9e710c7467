// librdkafka's messages → the buffers of Arrow columns. infra/kafka/consumer/decode_native.py calls it and says what it
// is for; infra/kafka/consumer/message_queue.py owns the messages. There is no state but the addresses of functions.
//
// Every call takes an array of messages of which the slots that are not NULL are owned by the array: `replicator_fill`
// and `replicator_destroy` destroy messages and set their slots to NULL. Nothing else here frees or keeps a pointer.
#include "librdkafka.h"

#include <stdlib.h>
#include <string.h>

const char replicator_sources[] = SOURCES;

static int64_t (*message_timestamp)(const message_t *, int *);
static int (*message_headers)(const message_t *, void **);
static int (*header_get_all)(const void *, size_t, const char **, const void **, size_t *);
static void (*message_destroy)(message_t *);
static int32_t (*message_leader_epoch)(const message_t *);

// `addresses`: of rd_kafka_ + the names above, in this order.
void replicator_consume_init(void **addresses) {
  message_timestamp = addresses[0];
  message_headers = addresses[1];
  header_get_all = addresses[2];
  message_destroy = addresses[3];
  message_leader_epoch = addresses[4];
}

// A header name may contain NUL, which no public function shows: its size lies in the client's own structure before the
// name, behind which are only the value's address and the name. `replicator_sized_names` says whether that is so in the
// library of this process; else a name ends at its first NUL.
static int sized_names = 0;

static size_t name_size(const char *name) {
  size_t shown = strlen(name), size;
  if (!sized_names) return shown;
  memcpy(&size, name - sizeof(void *) - sizeof size, sizeof size);
  return size;
}

// Makes headers by the library's own functions, at `addresses`: of headers_new, header_add and headers_destroy. Returns 1
// if the sizes of their names are where they are expected. Without addresses: 0, and none is used.
int replicator_sized_names(void **addresses) {
  sized_names = 0;
  if (!addresses) return 0;
  void *(*headers_new)(size_t) = addresses[0];
  int (*header_add)(void *, const char *, ptrdiff_t, const void *, ptrdiff_t) = addresses[1];
  void (*headers_destroy)(void *) = addresses[2];
  static const struct {
    const char *name, *value;
    size_t size;
  } tried[] = {{"a\0b", NULL, 3}, {"\0", "v", 1}, {"", "", 0}, {"a\0\0", "", 3}, {"long enough to differ", NULL, 21}};
  void *headers = headers_new(1);
  const char *name;
  const void *value;
  size_t len, count = sizeof tried / sizeof *tried;
  int same = headers != NULL;
  for (size_t i = 0; same && i < count; i++)
    same = header_add(headers, tried[i].name, tried[i].size, tried[i].value, tried[i].value ? strlen(tried[i].value) : 0) == 0;
  sized_names = same;
  for (size_t i = 0; same && i < count; i++)
    same = header_get_all(headers, i, &name, &value, &len) == 0 && name_size(name) == tried[i].size &&
           memcmp(name, tried[i].name, tried[i].size + 1) == 0;
  if (headers) headers_destroy(headers);
  return sized_names = same;
}

// The error callback of the client's own module aborts the process where it is called outside of the module's own calls.
// The library calls it for errors that it puts into the queue of a partition, such as that a partition is gone from its
// topic. So this one stands in its place: inside of `replicator_take` it notes the code, anywhere else it calls the
// module's, which is the same function for all clients.
typedef void error_callback(void *rk, int code, const char *reason, void *opaque);
static error_callback *client_error;

enum { NOTED = 16 };
static _Thread_local int32_t *noted;  // how many errors there were, and the codes of the first; NULL outside of `take`

static void on_error(void *rk, int code, const char *reason, void *opaque) {
  if (!noted) {
    client_error(rk, code, reason, opaque);
    return;
  }
  if (noted[0] < NOTED) noted[1 + noted[0]] = code;
  noted[0]++;
}

// `addresses`: of rd_kafka_ + conf, conf_get and conf_set_error_cb. To be called before anything is taken of the client.
// Returns 1 if its error callback is ours then.
int replicator_guard(void **addresses, void *rk) {
  const void *(*conf_of)(void *) = addresses[0];
  int (*conf_get)(const void *, const char *, char *, size_t *) = addresses[1];
  void (*set_error_cb)(void *, error_callback *) = addresses[2];
  const void *conf = conf_of(rk);
  for (int attempt = 0; attempt < 2; attempt++) {
    char text[64];
    size_t size = sizeof text;
    if (conf_get(conf, "error_cb", text, &size) != 0) return 0;
    error_callback *found = (error_callback *)(uintptr_t)strtoull(text, NULL, 16);
    if (found == on_error) return 1;
    if (!found || (client_error && client_error != found)) return 0;
    client_error = found;
    set_error_cb((void *)conf, on_error);
  }
  return 0;
}

// Messages of `queue`, as the library's `consume_batch_queue` returns them. `errors`: 1 + NOTED numbers.
int64_t replicator_take(ptrdiff_t (*consume_batch_queue)(void *, int, message_t **, size_t), void *queue, int32_t timeout_ms,
                        message_t **messages, int64_t count, int32_t *errors) {
  errors[0] = 0;
  noted = errors;
  int64_t found = consume_batch_queue(queue, timeout_ms, messages, count);
  noted = NULL;
  return found;
}

enum { RECORDS = 0, EVENT = 1, UNDECODABLE = 2 };

// A part: consecutive messages of one partition. RECORDS: of one leader epoch, offsets strictly rising, each column
// less than LIMIT bytes. EVENT: one message that carries an error. UNDECODABLE: one record with headers that the library
// cannot read, or with a name that is not UTF-8; no sizes of it are known.
typedef struct {
  int64_t begin, end;  // in the sorted array
  int64_t topic, partition, kind, error, epoch, first_offset, last_offset;
  int64_t key_bytes, value_bytes, headers, header_key_bytes, header_value_bytes;
  int64_t null_keys, null_values, with_headers, null_header_values;
} part_t;

#define LIMIT ((int64_t)1 << 30)
#define PARTITION_EOF (-191)
#define NO_HEADERS (-156)  // _NOENT; any other code: there are some that the library cannot read, or more than 100,000

static int is_utf8(const unsigned char *s, size_t n) {
  for (size_t i = 0; i < n;) {
    unsigned c = s[i];
    size_t more;
    unsigned low = 0x80, high = 0xBF;  // of the second byte
    if (c < 0x80) {
      i++;
      continue;
    }
    if (c >= 0xC2 && c <= 0xDF) {
      more = 1;
    } else if (c >= 0xE0 && c <= 0xEF) {
      more = 2;
      if (c == 0xE0) low = 0xA0;   // else it has a shorter form
      if (c == 0xED) high = 0x9F;  // else it is half of a surrogate pair
    } else if (c >= 0xF0 && c <= 0xF4) {
      more = 3;
      if (c == 0xF0) low = 0x90;
      if (c == 0xF4) high = 0x8F;  // the last code point
    } else {
      return 0;
    }
    if (n - i <= more || s[i + 1] < low || s[i + 1] > high) return 0;
    for (size_t j = 2; j <= more; j++)
      if ((s[i + j] & 0xC0) != 0x80) return 0;
    i += more + 1;
  }
  return 1;
}

// Adds the record's sizes to `to`; 0 if it cannot be decoded.
static int measure(const message_t *m, part_t *to) {
  if (m->key)
    to->key_bytes += m->key_len;
  else
    to->null_keys++;
  if (m->value)
    to->value_bytes += m->value_len;
  else
    to->null_values++;
  void *headers;
  int code = message_headers(m, &headers);
  if (code) return code == NO_HEADERS;
  const char *name;
  const void *value;
  size_t len, i;
  for (i = 0; header_get_all(headers, i, &name, &value, &len) == 0; i++) {
    size_t name_len = name_size(name);
    if (!is_utf8((const unsigned char *)name, name_len)) return 0;
    to->header_key_bytes += name_len;
    if (value)
      to->header_value_bytes += len;
    else
      to->null_header_values++;
  }
  to->headers += i;
  if (i) to->with_headers++;
  return 1;
}

static int is_full(const part_t *p) {
  return p->key_bytes > LIMIT || p->value_bytes > LIMIT || p->headers > LIMIT || p->header_key_bytes > LIMIT ||
         p->header_value_bytes > LIMIT;
}

static part_t start(const message_t *m, int64_t at, int64_t kind, int64_t epoch) {
  part_t p;
  memset(&p, 0, sizeof p);
  p.begin = at;
  p.end = at + 1;
  p.topic = (int64_t)(intptr_t)m->topic;
  p.partition = m->partition;
  p.kind = kind;
  p.error = m->err;
  p.epoch = epoch;
  p.first_offset = p.last_offset = m->offset;
  return p;
}

// One more record at `at`, to the last part if it belongs there, else to a new one. Returns the number of parts.
static int64_t add(message_t **sorted, int64_t at, part_t *parts, int64_t first, int64_t count) {
  const message_t *m = sorted[at];
  int64_t epoch = message_leader_epoch(m);
  part_t *last = count > first ? &parts[count - 1] : NULL;
  if (last && last->kind == RECORDS && last->epoch == epoch && m->offset > last->last_offset && last->end == at) {
    part_t grown = *last;
    if (measure(m, &grown) && !is_full(&grown)) {
      grown.end = at + 1;
      grown.last_offset = m->offset;
      *last = grown;
      return count;
    }
  }
  part_t one = start(m, at, RECORDS, epoch);
  if (!measure(m, &one)) one = start(m, at, UNDECODABLE, epoch);
  parts[count] = one;
  return count + 1;
}

// Sorts `messages` by partition, each in its own order, into `sorted`, and cuts them into parts, of which there are at
// most `count`. A partition EOF with a record or another EOF behind it is in no part. `scratch`: 32-bit numbers, three
// for each message and as many as `slots`, a power of two of at least twice the messages. Returns the number of parts.
int64_t replicator_arrange(message_t **messages, int64_t count, message_t **sorted, int32_t *scratch, int64_t slots,
                           part_t *parts) {
  int32_t *table = scratch, *group_of = scratch + slots, *first_of = group_of + count, *size_of = first_of + count;
  int32_t groups = 0;
  memset(table, 0xFF, slots * sizeof *table);
  for (int64_t i = 0; i < count; i++) {
    const message_t *m = messages[i];
    if (i && messages[i - 1]->topic == m->topic && messages[i - 1]->partition == m->partition) {
      size_of[group_of[i] = group_of[i - 1]]++;
      continue;
    }
    uint64_t hash = ((uint64_t)(uintptr_t)m->topic >> 4) * 0x9E3779B97F4A7C15u + (uint32_t)m->partition;
    int64_t slot = (hash ^ hash >> 29) & (slots - 1);
    int32_t group;
    for (; (group = table[slot]) >= 0; slot = (slot + 1) & (slots - 1)) {
      const message_t *other = messages[first_of[group]];
      if (other->topic == m->topic && other->partition == m->partition) break;
    }
    if (group < 0) {
      group = table[slot] = groups++;
      first_of[group] = i;
      size_of[group] = 0;
    }
    group_of[i] = group;
    size_of[group]++;
  }
  int32_t at = 0;  // from here on first_of is where the group's next message goes
  for (int32_t group = 0; group < groups; group++) {
    first_of[group] = at;
    at += size_of[group];
  }
  for (int64_t i = 0; i < count; i++) sorted[first_of[group_of[i]]++] = messages[i];

  int64_t found = 0, begin = 0;
  for (int32_t group = 0; group < groups; group++) {
    int64_t end = begin + size_of[group], first = found, next = begin;  // `next`: where a kept message goes
    for (int64_t i = begin; i < end; i++) {
      message_t *m = sorted[i];
      if (m->err == PARTITION_EOF && i + 1 < end && (!sorted[i + 1]->err || sorted[i + 1]->err == PARTITION_EOF)) {
        message_destroy(m);
        continue;
      }
      sorted[next] = m;
      if (next != i) sorted[i] = NULL;
      if (m->err)
        parts[found++] = start(m, next, EVENT, -1);
      else
        found = add(sorted, next, parts, first, found);
      next++;
    }
    while (next < end) sorted[next++] = NULL;
    begin = end;
  }
  return found;
}

// Leave out the records of `part` before `next_offset`; its `end` is its `begin` when none is left.
void replicator_trim(message_t **sorted, part_t *part, int64_t next_offset) {
  int64_t begin = part->begin, end = part->end;
  while (begin < end && sorted[begin]->offset < next_offset) begin++;
  if (begin == part->begin) return;
  if (begin == end || part->kind != RECORDS) {
    part->begin = part->end = end;
    return;
  }
  part_t left = start(sorted[begin], begin, RECORDS, part->epoch);
  left.end = end;
  left.last_offset = part->last_offset;
  for (int64_t i = begin; i < end; i++) measure(sorted[i], &left);
  *part = left;
}

// The offset of the first record of `part` at or after `next_offset`; -1 if there is none.
int64_t replicator_first_from(message_t **sorted, const part_t *part, int64_t next_offset) {
  for (int64_t i = part->begin; i < part->end; i++)
    if (sorted[i]->offset >= next_offset) return sorted[i]->offset;
  return -1;
}

enum { OFFSET, TIMESTAMP, TYPE, KEY_VALID, KEY_ENDS, KEY, VALUE_VALID, VALUE_ENDS, VALUE, HEADERS_VALID, HEADERS_ENDS,
       NAME_ENDS, NAME, HEADER_VALID, HEADER_ENDS, HEADER, BUFFERS };

// Where each buffer of a part of RECORDS begins in one piece of memory, aligned to 64 bytes, and its size in bytes; -1 for
// both: there is none, since nothing is null. Returns the size of all.
int64_t replicator_layout(const part_t *p, int64_t begins[BUFFERS], int64_t sizes[BUFFERS]) {
  int64_t rows = p->end - p->begin, ends = 4 * (rows + 1), header_ends = 4 * (p->headers + 1), bits = (rows + 7) / 8;
  sizes[OFFSET] = sizes[TIMESTAMP] = 8 * rows;
  sizes[TYPE] = rows;
  sizes[KEY_VALID] = p->null_keys ? bits : -1;
  sizes[VALUE_VALID] = p->null_values ? bits : -1;
  sizes[KEY_ENDS] = sizes[VALUE_ENDS] = sizes[HEADERS_ENDS] = ends;
  sizes[KEY] = p->key_bytes;
  sizes[VALUE] = p->value_bytes;
  sizes[HEADERS_VALID] = p->with_headers < rows ? bits : -1;
  sizes[NAME_ENDS] = sizes[HEADER_ENDS] = header_ends;
  sizes[NAME] = p->header_key_bytes;
  sizes[HEADER_VALID] = p->null_header_values ? (p->headers + 7) / 8 : -1;
  sizes[HEADER] = p->header_value_bytes;
  int64_t at = 0;
  for (int i = 0; i < BUFFERS; i++) {
    begins[i] = sizes[i] < 0 ? -1 : at;
    if (sizes[i] > 0) at = (at + sizes[i] + 63) / 64 * 64;
  }
  return at;
}

static void copy(uint8_t *data, int32_t *at, const void *from, size_t len) {
  if (len) memcpy(data + *at, from, len);
  *at += (int32_t)len;
}

static void set(uint8_t *bits, int64_t i) {
  if (bits) bits[i >> 3] |= 1 << (i & 7);
}

// Writes the buffers of `part` into `memory`, laid out as `begins` says, and destroys its messages.
void replicator_fill(message_t **sorted, const part_t *part, const int64_t *begins, uint8_t *memory) {
  uint8_t *b[BUFFERS];
  for (int i = 0; i < BUFFERS; i++) b[i] = begins[i] < 0 ? NULL : memory + begins[i];
  int64_t rows = part->end - part->begin, bits = (rows + 7) / 8;
  if (b[KEY_VALID]) memset(b[KEY_VALID], 0, bits);
  if (b[VALUE_VALID]) memset(b[VALUE_VALID], 0, bits);
  if (b[HEADERS_VALID]) memset(b[HEADERS_VALID], 0, bits);
  if (b[HEADER_VALID]) memset(b[HEADER_VALID], 0, (part->headers + 7) / 8);
  int64_t *offsets = (int64_t *)b[OFFSET], *timestamps = (int64_t *)b[TIMESTAMP];
  int8_t *types = (int8_t *)b[TYPE];
  int32_t *key_ends = (int32_t *)b[KEY_ENDS], *value_ends = (int32_t *)b[VALUE_ENDS];
  int32_t *headers_ends = (int32_t *)b[HEADERS_ENDS];
  int32_t *name_ends = (int32_t *)b[NAME_ENDS], *header_ends = (int32_t *)b[HEADER_ENDS];
  int32_t key_at = 0, value_at = 0, headers_at = 0, name_at = 0, header_at = 0;
  key_ends[0] = value_ends[0] = headers_ends[0] = name_ends[0] = header_ends[0] = 0;
  for (int64_t row = 0; row < rows; row++) {
    message_t *m = sorted[part->begin + row];
    int type = 0;
    offsets[row] = m->offset;
    timestamps[row] = message_timestamp(m, &type);
    types[row] = (int8_t)(type >= 0 && type <= 2 ? type - 1 : type);  // librdkafka: 0 none; Kafka: -1 none
    if (m->key) {
      copy(b[KEY], &key_at, m->key, m->key_len);
      set(b[KEY_VALID], row);
    }
    key_ends[row + 1] = key_at;
    if (m->value) {
      copy(b[VALUE], &value_at, m->value, m->value_len);
      set(b[VALUE_VALID], row);
    }
    value_ends[row + 1] = value_at;
    void *headers;
    if (message_headers(m, &headers) == 0) {
      const char *name;
      const void *value;
      size_t len, i;
      for (i = 0; header_get_all(headers, i, &name, &value, &len) == 0; i++) {
        copy(b[NAME], &name_at, name, name_size(name));
        if (value) {
          copy(b[HEADER], &header_at, value, len);
          set(b[HEADER_VALID], headers_at);
        }
        headers_at++;
        name_ends[headers_at] = name_at;
        header_ends[headers_at] = header_at;
      }
      if (i) set(b[HEADERS_VALID], row);
    }
    headers_ends[row + 1] = headers_at;
    sorted[part->begin + row] = NULL;
    message_destroy(m);
  }
}

// Destroys what the array still owns.
void replicator_destroy(message_t **messages, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    if (messages[i]) message_destroy(messages[i]);
    messages[i] = NULL;
  }
}
