/** `--copy` and `--copy-device`: what copies KV between host memory and HBM. */
import { Option } from 'commander';
import type { CopyOptions, CopyWay } from '../traffic/index.js';

export function copyOption(ways: readonly CopyWay[], fallback: CopyWay = 'auto'): Option {
  const text =
    'copies between host memory and HBM: through the NIC (loopback RDMA writes), by memcpy, or auto: the NIC that is ' +
    'named or near the GPU on PCI, else memcpy';
  return new Option('--copy <way>', text).choices(ways).default(fallback);
}

export function copiesOf({
  copy,
  copyDevice,
}: {
  readonly copy: CopyWay;
  readonly copyDevice?: string | undefined;
}): CopyOptions {
  return { way: copy, ...(copyDevice === undefined ? {} : { device: copyDevice }) };
}
