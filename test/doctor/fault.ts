/** A fault to plant on a host that is in order, and what is to be found of it. */
import type { Severity } from '../../src/doctor/index.js';
import type { HostProbes } from '../../src/host-view/index.js';
import type { PlantedHost } from './host.js';

export interface Fault {
  readonly id: string;
  readonly name: string;
  readonly severity: Severity;
  readonly plant: (host: PlantedHost) => void;
  readonly found: RegExp;
  readonly remedy: RegExp;
  /** Checks that rightly see something of it, too. */
  readonly also: readonly string[];
}

type Plant = Fault['plant'];
type Row = readonly [
  id: string,
  name: string,
  severity: Severity,
  plant: Plant,
  found: RegExp,
  remedy: RegExp,
  also?: readonly string[],
];

export const faultOf = ([id, name, severity, plant, found, remedy, also = []]: Row): Fault => ({
  ...{ id, name, severity, plant, found, remedy, also },
});
export type { Row };

/** System calls and libraries that answer otherwise. */
export const probe =
  (changed: Partial<HostProbes>): Plant =>
  (host) => {
    host.probes = { ...host.probes, ...changed };
  };

export const file =
  (path: string, content: string | Buffer): Plant =>
  (host) =>
    host.set(path, content);

export const edit =
  (path: string, from: string | RegExp, to: string): Plant =>
  (host) =>
    host.set(path, (host.files.get(path) as string).replace(from, to));

export const gone =
  (...paths: readonly string[]): Plant =>
  (host) =>
    paths.forEach((path) => host.remove(path));

export const all =
  (...plants: readonly Plant[]): Plant =>
  (host) =>
    plants.forEach((plant) => plant(host));
