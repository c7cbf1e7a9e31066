/* A stand-in for libibverbs.so.1 in the tests of discovery: two devices that are not there, under the real
   structures, so that offsets restated in TypeScript are held against the compiler's. It carries no data. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>
#include <string.h>

#undef ibv_get_device_list
#undef ibv_query_port

static struct ibv_device devices[2];
static struct ibv_context contexts[2];

struct ibv_device** ibv_get_device_list(int* count) {
  struct ibv_device** list = calloc(3, sizeof *list);
  strcpy(devices[0].name, "standin_ib0");
  strcpy(devices[1].name, "standin_roce0");
  for (int i = 0; i < 2; i++) {
    list[i] = &devices[i];
    contexts[i].device = &devices[i];
  }
  const int number = getenv("STANDIN_NO_DEVICES") != NULL ? 0 : 2;
  list[number] = NULL;
  if (count != NULL) *count = number;
  return list;
}

void ibv_free_device_list(struct ibv_device** list) { free(list); }
const char* ibv_get_device_name(struct ibv_device* device) { return device->name; }
__be64 ibv_get_device_guid(struct ibv_device* device) {
  return htobe64(device == devices ? 0x1122334455667788ull : 2);
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
  if (getenv("STANDIN_OPEN_ERRNO") != NULL) {
    errno = atoi(getenv("STANDIN_OPEN_ERRNO"));
    return NULL;
  }
  return &contexts[device - devices];
}

int ibv_close_device(struct ibv_context* context) { return context == NULL; }

int ibv_query_port(struct ibv_context* context, uint8_t port, struct _compat_ibv_port_attr* out) {
  struct ibv_port_attr attr;
  if (port != 1) return EINVAL;
  memset(&attr, 0, sizeof attr);
  attr.state = context == contexts ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attr.max_mtu = IBV_MTU_4096;
  attr.active_mtu = IBV_MTU_1024;
  attr.gid_tbl_len = 4;
  attr.max_msg_sz = 1u << 30;
  attr.lid = 77;
  attr.link_layer = context == contexts ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
  /* The exported function knows the fields up to flags. */
  memcpy(out, &attr, offsetof(struct ibv_port_attr, port_cap_flags2));
  return 0;
}

static void entry(struct ibv_gid_entry* out, uint32_t index, uint32_t type, const uint8_t* raw) {
  memset(out, 0, sizeof *out);
  memcpy(out->gid.raw, raw, 16);
  out->gid_index = index;
  out->port_num = 1;
  out->gid_type = type;
  out->ndev_ifindex = 1;
}

ssize_t _ibv_query_gid_table(struct ibv_context* context, struct ibv_gid_entry* entries, size_t most,
                             uint32_t flags, size_t size) {
  static const uint8_t local[16] = {0xfe, 0x80, [15] = 1};
  static const uint8_t mapped[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 7};
  if (size != sizeof *entries || flags != 0 || most < 3) return -EINVAL;
  if (context == contexts) {
    entry(&entries[0], 0, IBV_GID_TYPE_IB, local);
    return 1;
  }
  entry(&entries[0], 0, IBV_GID_TYPE_ROCE_V1, mapped);
  entry(&entries[1], 1, IBV_GID_TYPE_ROCE_V2, local);
  entry(&entries[2], 3, IBV_GID_TYPE_ROCE_V2, mapped);
  return 3;
}
