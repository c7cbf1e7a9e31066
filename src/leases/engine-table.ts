import { DualPathError } from '../errors/index.js';
import type { EnginePresence, GroupHello } from './types.js';
import type { RequestRecord } from './request-record.js';

export interface EngineRecord {
  readonly presence: EnginePresence;
  readonly name: string;
  readonly group: GroupRecord;
  /** Requests whose lease on this engine has not ended. */
  readonly leases: Set<RequestRecord>;
  lost: boolean;
}

/** Engines that one leader speaks for. */
export interface GroupRecord {
  readonly name: string;
  readonly engines: Map<string, EngineRecord>;
  /** Its leader's stream is there. */
  connected: boolean;
  /** Further assignments that it takes; none until it fetches. */
  credits: number;
  /** Its engines are given requests. */
  open: boolean;
  draining: boolean;
  heardS: number;
}

/** Bounds what a misconfigured cluster costs. */
const maxEngines = 65_536;
const maxGroupEngines = 1024;

/** Engines by name and by group, and when each group was last heard. */
export class EngineTable {
  readonly groups = new Map<string, GroupRecord>();
  readonly engines = new Map<string, EngineRecord>();

  /** @throws INVALID_ARGUMENT for a hello that contradicts itself or what is known */
  check({ group, engines }: GroupHello): void {
    if (group === '' || engines.length === 0 || engines.length > maxGroupEngines) {
      refuse(`group '${group}' has ${engines.length} engines; give it a name and 1 to ${maxGroupEngines}`);
    }
    const names = new Set<string>();
    for (const { capacity, incarnation } of engines) {
      const { engine, role, group: own } = capacity;
      if (own !== group) refuse(`engine '${engine}' is of group '${own}', its leader speaks for '${group}'`);
      if (role !== engines[0]!.capacity.role) {
        refuse(`group '${group}' has engines of both roles; make a group a role`);
      }
      if (names.has(engine)) refuse(`engine '${engine}' is twice in group '${group}'; name each once`);
      names.add(engine);
      if (!Number.isSafeInteger(incarnation) || incarnation < 1) {
        refuse(
          `incarnation of engine '${engine}' is ${incarnation}; give an integer that grows with each start`,
        );
      }
      const known = this.engines.get(engine);
      if (known === undefined || known.presence.incarnation <= incarnation) continue;
      refuse(
        `engine '${engine}' says it is incarnation ${incarnation}, but ${known.presence.incarnation} has been here; ` +
          'end the older process, or start the engine anew',
      );
    }
    const others = [...(this.groups.get(group)?.engines.keys() ?? [])].length;
    if (this.engines.size - others + engines.length <= maxEngines) return;
    throw new DualPathError('CAPACITY_EXHAUSTED', `${maxEngines} engines are here, the most that may be`, {
      limit: maxEngines,
    });
  }

  group(name: string): GroupRecord {
    const group = this.groups.get(name);
    if (group) return group;
    throw new DualPathError('INTERNAL', `group '${name}' has said no hello: please report this`);
  }

  /** Its leader is there, with a stream of its own. */
  connect(name: string, nowS: number): GroupRecord {
    const group = this.groups.get(name) ?? {
      ...{ name, engines: new Map<string, EngineRecord>() },
      ...{ connected: false, credits: 0, open: false, draining: false, heardS: nowS },
    };
    this.groups.set(name, group);
    group.connected = true;
    group.draining = false;
    group.credits = 0;
    group.heardS = nowS;
    return group;
  }

  add(group: GroupRecord, presence: EnginePresence): EngineRecord {
    const name = presence.capacity.engine;
    const record: EngineRecord = { presence, name, group, leases: new Set(), lost: false };
    group.engines.set(name, record);
    this.engines.set(name, record);
    return record;
  }

  remove(engine: EngineRecord): void {
    engine.lost = true;
    const { group, name } = engine;
    group.engines.delete(name);
    if (this.engines.get(name) === engine) this.engines.delete(name);
    if (group.engines.size === 0) this.groups.delete(group.name);
  }
}

function refuse(message: string): never {
  throw new DualPathError('INVALID_ARGUMENT', message);
}
