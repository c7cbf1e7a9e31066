/** PCIe: links, settings, and the way between GPU and NIC. */
import { pairedNic } from '../../rdma/index.js';
import { pciAddressOf, readNumber } from '../../host-view/index.js';
import { hardwareOf, isOlder, type Check, type Host, type Problem } from '../check.js';
import { bridgesOf, gpusOf, pciControls, pciFolder } from '../pci.js';

interface PciFunction {
  readonly name: string;
  readonly address: string;
}

const nicsOf = (host: Host): PciFunction[] =>
  hardwareOf(host).flatMap(({ name, pciAddress }) =>
    pciAddress === null ? [] : [{ name, address: pciAddress }],
  );
const drivesOf = ({ view }: Host): PciFunction[] =>
  view.list('/sys/class/nvme').flatMap((name) => {
    const address = pciAddressOf(view, `/sys/class/nvme/${name}`);
    return address === null ? [] : [{ name, address }];
  });
const gpuFunctions = ({ view }: Host): PciFunction[] =>
  gpusOf(view).map((address) => ({ name: `GPU ${address}`, address }));

/** "16.0 GT/s PCIe"; 0: unknown. */
function speedOf(text: string | null): number {
  const [, value = '0'] = /^([\d.]+) GT\/s/.exec(text ?? '') ?? [];
  return Number(value);
}

export const pcieLink: Check = {
  id: 'pcie-link',
  looksAt:
    'current and greatest link width and speed of NICs, GPUs (width only: they slow down when idle) and NVMe drives',
  why: 'A card in a slot with half the lanes, or trained down by a bad contact, has half the bandwidth whatever its port says.',
  remedy: 'Reseat the card, use a slot with all lanes, look for a BIOS setting that limits the slot',
  run: (host) => {
    const { view } = host;
    const gpus = gpuFunctions(host);
    return [...nicsOf(host), ...gpus, ...drivesOf(host)].flatMap(({ name, address }): Problem[] => {
      const folder = `${pciFolder}/${address}`;
      const number = (file: string): number => readNumber(view, `${folder}/${file}`) ?? 0;
      const speed = (file: string): number => speedOf(view.read(`${folder}/${file}`).text);
      const [width, most] = [number('current_link_width'), number('max_link_width')];
      const [rate, fastest] = [speed('current_link_speed'), speed('max_link_speed')];
      const isGpu = gpus.some((gpu) => gpu.address === address);
      // Width 0: no link (a virtual function).
      const narrow = width > 0 && width < most;
      const slow = !isGpu && rate > 0 && rate < fastest;
      if (!narrow && !slow) return [];
      const found = `${name} (${address}) runs at x${width} ${rate} GT/s of x${most} ${fastest} GT/s`;
      const remedy = `reseat the card or move it to a slot of x${most}; lspci -vv -s ${address} and its bridge show LnkCap and LnkSta`;
      return [{ severity: 'warning', found, remedy }];
    });
  },
};

const wantedReadBytes = 512;
const asRoot =
  'run as root (sudo dualpath doctor): only root sees more than 64 bytes of /sys/bus/pci/devices/*/config';

export const pcieSettings: Check = {
  id: 'pcie-settings',
  looksAt: 'MaxReadReq and relaxed ordering in the configuration space of NICs',
  why: 'Small read requests limit what a NIC fetches from memory; without relaxed ordering its writes queue behind one another, badly so on AMD and with GPUs.',
  remedy: '`setpci -s NIC CAP_EXP+8.w`: bits 14:12 = 5 (4096 bytes), bit 4 = 1; BIOS: relaxed ordering on',
  run: (host) => {
    const nics = nicsOf(host);
    const controls = nics.map((nic) => ({ ...nic, controls: pciControls(host.view, nic.address) }));
    const dark = controls.filter((nic) => nic.controls === null).map(({ name }) => name);
    const problems = controls.flatMap(({ name, address, controls: settings }): Problem[] => {
      const { maxReadBytes = null, relaxedOrdering = null } = settings ?? {};
      const found: Problem[] = [];
      if (maxReadBytes !== null && maxReadBytes < wantedReadBytes) {
        const remedy = `setpci -s ${address} CAP_EXP+8.w=5000:7000`;
        found.push({ severity: 'warning', found: `${name}: MaxReadReq is ${maxReadBytes} bytes`, remedy });
      }
      if (relaxedOrdering === false) {
        const remedy = `setpci -s ${address} CAP_EXP+8.w=0010:0010, and PCI relaxed ordering in the BIOS`;
        found.push({ severity: 'note', found: `${name}: relaxed ordering is off`, remedy });
      }
      return found;
    });
    return dark.length === 0
      ? problems
      : [
          ...problems,
          {
            severity: 'unknown',
            found: `the configuration space of ${dark.join(', ')} cannot be read`,
            remedy: asRoot,
          },
        ];
  },
};

/** Each GPU with the NIC that copies to and from it would take. */
function pairs(host: Host): { gpu: string; nic: string; address: string; hops: number }[] {
  const nics = hardwareOf(host);
  return gpusOf(host.view).flatMap((gpu) => {
    const paired = pairedNic(gpu, nics, `${host.view.root}${pciFolder}`);
    const address = nics.find(({ name }) => name === paired?.device)?.pciAddress ?? null;
    return paired === null || address === null
      ? []
      : [{ gpu, nic: paired.device, address, hops: paired.hops }];
  });
}

export const gpuNicDistance: Check = {
  id: 'gpu-nic-distance',
  looksAt: 'the nearest NIC of every GPU in the PCI tree',
  why: 'Copies of a GPU go through its NIC: across root complexes they cross the processor’s fabric, which is slower or refuses them.',
  remedy: 'Put NIC and GPU under one switch or root port; otherwise `copyWay: "plain"` (docs/gpu.md)',
  run: (host) => {
    const taken = new Map<string, string>();
    return pairs(host).flatMap(({ gpu, nic, hops }): Problem[] => {
      const before = taken.get(nic);
      taken.set(nic, gpu);
      if (hops === Number.MAX_SAFE_INTEGER) {
        const remedy =
          "move the NIC to the GPU's root complex (nvidia-smi topo -m: PIX or PXB), or copyWay 'plain'";
        return [
          {
            severity: 'warning',
            found: `GPU ${gpu}: the nearest NIC, ${nic}, is on another root complex`,
            remedy,
          },
        ];
      }
      if (before === undefined) return [];
      const found = `GPUs ${before} and ${gpu} share the NIC ${nic}: the paper's design has one for each`;
      return [{ severity: 'note', found, remedy: 'a NIC for each GPU, under the same PCIe switch' }];
    });
  },
};

export const accessControl: Check = {
  id: 'acs',
  looksAt: 'ACS redirection of the bridges between each GPU and its NIC',
  why: 'With redirection every transfer between GPU and NIC climbs to the root complex instead of crossing at their switch: slower, or not at all where the root refuses it.',
  remedy:
    '`setpci -s BRIDGE ECAP_ACS+6.w=0000` (bare metal), or `pci=disable_acs_redir=` on the kernel’s command line',
  run: (host) => {
    const { view } = host;
    const bridges = new Set(
      pairs(host).flatMap(({ gpu, address }) => [...bridgesOf(view, gpu), ...bridgesOf(view, address)]),
    );
    const controls = [...bridges].map((bridge) => ({ bridge, controls: pciControls(view, bridge) }));
    const redirecting = controls
      .filter((one) => one.controls?.redirects === true)
      .map(({ bridge }) => bridge);
    const problems: Problem[] = [];
    if (controls.some((one) => one.controls === null))
      problems.push({ severity: 'unknown', found: 'ACS of bridges cannot be read', remedy: asRoot });
    if (redirecting.length > 0) {
      const remedy = redirecting.map((bridge) => `setpci -s ${bridge} ECAP_ACS+6.w=0000`).join('; ');
      problems.push({ severity: 'warning', found: `ACS redirects at ${redirecting.join(', ')}`, remedy });
    }
    return problems;
  },
};

export const gpuDirect: Check = {
  id: 'gpudirect',
  looksAt: 'NVIDIA’s driver; dma-buf (open kernel modules, Linux 5.12) or nvidia_peermem',
  why: 'Without either a NIC cannot reach GPU memory, and everything is staged through host memory.',
  remedy: 'The open kernel modules of NVIDIA’s driver, or `modprobe nvidia_peermem`',
  run: (host) => {
    const { view, kernel } = host;
    if (gpusOf(view).length === 0 || hardwareOf(host).length === 0) return [];
    const { text: version } = view.read('/proc/driver/nvidia/version');
    if (version === null)
      return [
        {
          severity: 'error',
          found: "there are NVIDIA GPUs, but NVIDIA's driver is not loaded",
          remedy: 'modprobe nvidia (in a container: --gpus all, with the NVIDIA container toolkit)',
        },
      ];
    if (view.exists('/sys/module/nvidia_peermem')) return [];
    const isOpen = /Open Kernel Module/i.test(version);
    if (isOpen && !isOlder(kernel, [5, 12])) return [];
    const why = isOpen
      ? `Linux ${kernel.join('.')} has no dma-buf for RDMA`
      : 'the driver’s modules are not the open ones';
    const found = `no way for NICs to GPU memory: nvidia_peermem is not loaded, and ${why}`;
    return [
      {
        severity: 'error',
        found,
        remedy: 'modprobe nvidia_peermem (after ib_core), or install the open kernel modules',
      },
    ];
  },
};

export const iommu: Check = {
  id: 'iommu',
  looksAt: 'the type of IOMMU group of NICs and GPUs',
  why: 'With translation on every DMA is looked up; GPU to NIC transfers go through the root complex, or fail.',
  remedy: 'Kernel command line `iommu=pt` (Intel: `intel_iommu=on iommu=pt`), or the IOMMU off in the BIOS',
  run: (host) => {
    const translated = [...nicsOf(host), ...gpuFunctions(host)].filter(({ address }) =>
      /^DMA/.test(host.view.read(`${pciFolder}/${address}/iommu_group/type`).text ?? ''),
    );
    if (translated.length === 0) return [];
    const found = `the IOMMU translates for ${translated.map(({ name }) => name).join(', ')}`;
    const remedy =
      'add iommu=pt to the kernel’s command line (GRUB_CMDLINE_LINUX, update-grub) and boot again';
    return [{ severity: 'warning', found, remedy }];
  },
};
