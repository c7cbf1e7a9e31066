// A stand-in for libibumad: one port whose management agent answers PortInfo, SLtoVL and VLArbitration with
// the paper's tables.
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { kHeader = 64, kMad = 256, kData = 64 };
static uint8_t request[kMad];

int umad_init(void) { return 0; }
int umad_open_port(const char* device, int port) {
  if (getenv("STANDIN_UMAD_DENIED") != NULL) return -EACCES;
  return strcmp(device, "standin0") == 0 && port == 1 ? 5 : -ENODEV;
}
int umad_close_port(int port) { return port == 5 ? 0 : -EINVAL; }
int umad_register(int port, int kind, int version, uint8_t rmpp, void* mask) {
  return port == 5 && kind == 0x81 && version == 1 && rmpp == 0 && mask == NULL ? 7 : -EINVAL;
}
size_t umad_size(void) { return kHeader; }
int umad_set_addr(void* umad, int lid, int qp, int sl, int qkey) {
  (void)umad;
  return lid == 0xffff && qp == 0 && sl == 0 && qkey == 0 ? 0 : -EINVAL;
}
int umad_status(void* umad) {
  (void)umad;
  return 0;
}

int umad_send(int port, int agent, void* umad, int length, int timeout_ms, int retries) {
  if (port != 5 || agent != 7 || length != kMad || timeout_ms <= 0 || retries <= 0) return -EINVAL;
  memcpy(request, (uint8_t*)umad + kHeader, kMad);
  // Base version, class, class version, SubnGet(); hop count 0 between permissive LIDs.
  const uint8_t wanted[] = {1, 0x81, 1, 1};
  const uint8_t nowhere[] = {0xff, 0xff, 0xff, 0xff};
  const int same = memcmp(request, wanted, 4) == 0 && memcmp(request + 32, nowhere, 4) == 0;
  return same && request[7] == 0 ? 0 : -EINVAL;
}

int umad_recv(int port, void* umad, int* length, int timeout_ms) {
  if (port != 5 || *length < kMad || timeout_ms <= 0) return -EINVAL;
  uint8_t* mad = (uint8_t*)umad + kHeader;
  memcpy(mad, request, kMad);
  uint8_t* data = mad + kData;
  const int attribute = request[16] << 8 | request[17];
  const uint32_t modifier =
      (uint32_t)request[20] << 24 | (uint32_t)request[21] << 16 | (uint32_t)request[22] << 8 | request[23];
  const uint8_t high[] = {0, 192, 1, 192, 2, 0, 3, 192};
  const uint8_t low[] = {0, 192, 1, 192, 2, 64, 3, 192};
  const uint8_t map[] = {0x01, 0x23, 0, 0, 0, 0, 0, 0x0f};
  if (attribute == 0x15 && modifier == 1) {
    data[30] = 3;             // LinkWidthSupported: 1X, 4X
    data[31] = 1;             // LinkWidthActive: 1X
    data[38] = 240;           // VLHighLimit
    data[39] = data[40] = 8;  // entries of the tables
    data[43] = 3 << 4;        // OperationalVLs: 0 to 3
  } else if (attribute == 0x17) {
    memcpy(data, map, sizeof map);
  } else if (attribute == 0x18 && modifier == (1u << 16 | 1)) {
    memcpy(data, low, sizeof low);
  } else if (attribute == 0x18 && modifier == (3u << 16 | 1)) {
    memcpy(data, high, sizeof high);
  } else {
    mad[5] = 0x0c;  // unsupported
  }
  return 7;
}
