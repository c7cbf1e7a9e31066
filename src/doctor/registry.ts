/** Every check, in the order of the report. */
import type { Check } from './check.js';
import { classesInfiniBand, classesRoce } from './checks/classes.js';
import { congestion, portErrors, transportErrors } from './checks/counters.js';
import { clock, controlGroup, cpuFrequency, nicNuma, openFiles } from './checks/cpu.js';
import { addressFlux, gidTable, linkSpeed, linkWidth, pathMtu } from './checks/links.js';
import { forkSafety, hugePages, memlock, numaBalancing } from './checks/memory.js';
import { addon } from './checks/package.js';
import { accessControl, gpuDirect, gpuNicDistance, iommu, pcieLink, pcieSettings } from './checks/pci.js';
import { firmware, portState, rdmaAccess, rdmaLibrary, rdmaSubsystem } from './checks/rdma.js';
import { ioUring, storeDirectIo, storeFileSystem, storeSpace } from './checks/storage.js';

export const checks: readonly Check[] = [
  ...[addon, rdmaSubsystem, rdmaLibrary, rdmaAccess, portState, linkWidth, linkSpeed, pathMtu, gidTable],
  ...[addressFlux, portErrors, transportErrors, congestion, firmware, classesInfiniBand, classesRoce],
  ...[memlock, hugePages, ioUring, storeDirectIo, storeSpace, storeFileSystem],
  ...[pcieLink, pcieSettings, nicNuma, gpuNicDistance, accessControl, gpuDirect, iommu],
  ...[clock, cpuFrequency, numaBalancing, openFiles, controlGroup, forkSafety],
];
