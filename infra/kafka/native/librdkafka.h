// What the compiled code uses of librdkafka: its public message, and the addresses of its functions, which Python looks
// up in the library that the confluent_kafka package brings along. Nothing is linked against librdkafka.
#ifndef REPLICATOR_LIBRDKAFKA_H
#define REPLICATOR_LIBRDKAFKA_H

#include <stddef.h>
#include <stdint.h>

// rd_kafka_message_t, part of the library's stable interface.
typedef struct {
  int err;  // not 0: no record
  void *topic;
  int32_t partition;
  void *value;  // NULL: null
  size_t value_len;
  void *key;  // NULL: null
  size_t key_len;
  int64_t offset;
  void *opaque;
} message_t;

// The build defines it: a digest of all sources, by which a test finds an object that was not built from them.
extern const char replicator_sources[];

#endif
