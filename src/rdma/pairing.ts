/** Which NIC is a GPU's: the one nearest to it on PCI, so that copies cross no bridge that they need not. */
import { readdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';

export const pciRoot = '/sys/bus/pci/devices';

export interface PairedNic {
  readonly device: string;
  /** Bridges and ports between the two in the tree of PCI; 0: the same switch port. */
  readonly hops: number;
  readonly reason: string;
}

interface Nic {
  readonly name: string;
  readonly pciAddress: string | null;
}

/** The place of a PCI device in the kernel's tree, such as /devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0. */
export function pciPath(address: string, root: string = pciRoot): string | null {
  try {
    const known = readdirSync(root).find((name) => name.toLowerCase() === address.toLowerCase());
    return known === undefined ? null : realpathSync(join(root, known));
  } catch {
    return null;
  }
}

/** Steps from one to the other through the nearest bridge above both; null: they hang on different root complexes. */
export function pciHops(a: string, b: string): number | null {
  const [left, right] = [a, b].map((path) =>
    path.split('/').filter((part) => /^(pci)?[0-9a-f]{4,}:/i.test(part)),
  );
  let shared = 0;
  while (shared < Math.min(left!.length, right!.length) && left![shared] === right![shared]) shared++;
  return shared === 0 ? null : left!.length + right!.length - 2 * shared;
}

/**
 * The nearest of these NICs; ties go by name, so that every process decides alike. null: no NIC has a place on PCI (soft-RoCE
 * has none) or the GPU's is not known; then it has to be configured.
 */
export function pairedNic(
  gpuPciAddress: string,
  nics: readonly Nic[],
  root: string = pciRoot,
): PairedNic | null {
  const gpu = pciPath(gpuPciAddress, root);
  if (gpu === null) return null;
  let best: PairedNic | null = null;
  for (const { name, pciAddress } of [...nics].sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const path = pciAddress === null ? null : pciPath(pciAddress, root);
    if (path === null) continue;
    const near = pciHops(gpu, path);
    const hops = near ?? Number.MAX_SAFE_INTEGER;
    if (best !== null && best.hops <= hops) continue;
    const reason =
      near === null ? 'on another root complex than the GPU' : `${near} hops from the GPU on PCI`;
    best = { device: name, hops, reason };
  }
  return best;
}
