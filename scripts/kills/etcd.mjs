/** Members of an etcd on ports of this host, each a process with a folder of its own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { join } from 'node:path';

async function freePorts(count) {
  const servers = await Promise.all(
    Array.from({ length: count }, async () => {
      const server = createServer().listen(0, '127.0.0.1');
      await once(server, 'listening');
      return server;
    }),
  );
  const ports = servers.map((server) => server.address().port);
  await Promise.all(servers.map((server) => new Promise((done) => server.close(done))));
  return ports;
}

export class EtcdMembers {
  endpoints = [];
  #members = [];

  static async start(folder, count) {
    const etcd = new EtcdMembers();
    const ports = await freePorts(2 * count);
    const members = Array.from({ length: count }, (_, i) => ({
      name: `member-${i}`,
      client: `127.0.0.1:${ports[2 * i]}`,
      peer: `http://127.0.0.1:${ports[2 * i + 1]}`,
    }));
    etcd.endpoints = members.map(({ client }) => client);
    const cluster = members.map(({ name, peer }) => `${name}=${peer}`).join(',');
    for (const { name, client, peer } of members) {
      const args = [
        ...['--name', name, '--data-dir', join(folder, name), '--initial-cluster', cluster],
        ...['--listen-client-urls', `http://${client}`, '--advertise-client-urls', `http://${client}`],
        ...['--listen-peer-urls', peer, '--initial-advertise-peer-urls', peer],
        ...['--log-level', 'error', '--unsafe-no-fsync'],
      ];
      etcd.#members.push({ args, child: undefined });
    }
    for (const member of etcd.#members) launch(member);
    return etcd;
  }

  /** One of them. */
  async killAndRestart() {
    const member = this.#members[Math.floor(Math.random() * this.#members.length)];
    member.child.kill('SIGKILL');
    await once(member.child, 'exit');
    launch(member);
  }

  async close() {
    for (const { child } of this.#members) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGKILL');
      await once(child, 'exit');
    }
  }
}

function launch(member) {
  member.child = spawn('etcd', member.args, { stdio: 'ignore' });
}
