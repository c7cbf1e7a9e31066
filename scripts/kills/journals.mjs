/** What engines wrote down: when each believed in which lease. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Leases of one request that two engines believed in at once, of different admissions. */
export function overlaps(folder, killedNs) {
  const byRequest = new Map();
  let leases = 0;
  for (const file of readdirSync(folder).filter((name) => name.startsWith('journal-'))) {
    const engine = file.slice('journal-'.length);
    for (const lease of leasesOf(readFileSync(join(folder, file), 'utf8'), killedNs.get(engine))) {
      leases++;
      const all = byRequest.get(lease.request) ?? [];
      byRequest.set(lease.request, [...all, { ...lease, engine }]);
    }
  }
  const found = [];
  for (const [request, all] of byRequest) {
    for (const one of all) {
      for (const other of all) {
        if (one.admission >= other.admission) continue;
        if (one.beginNs < other.endNs && other.beginNs < one.endNs)
          found.push(`${request}: ${one.engine} and ${other.engine} believed in leases of it at once`);
      }
    }
  }
  return { leases, found };
}

function leasesOf(text, killedNs) {
  const open = new Map();
  const leases = [];
  let last = 0n;
  for (const line of text.split('\n').filter((one) => one !== '')) {
    const [what, admission, request, at] = line.split(' ');
    last = BigInt(at);
    if (what === 'begin') open.set(admission, { admission: Number(admission), request, beginNs: last });
    else if (what === 'end') {
      leases.push({ ...open.get(admission), endNs: last });
      open.delete(admission);
    }
  }
  // Killed, or its leader was: the last word is when it had ended.
  for (const lease of open.values()) leases.push({ ...lease, endNs: killedNs ?? last });
  return leases;
}
