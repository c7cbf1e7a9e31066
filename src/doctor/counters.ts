/** Error counters of RDMA ports: which they are, what they tell, and how much is too much. */
import { readNumber, type HostView } from '../host-view/index.js';

export interface CounterMeaning {
  readonly kind: 'physical' | 'transport' | 'congestion';
  readonly meaning: string;
  readonly remedy: string;
  /** More than this part of the packets is too much. */
  readonly limit: number;
}

const cable =
  'reseat or replace cable and transceiver (mlxlink -d DEVICE -c; ibqueryerrors), then clear the counters';
const lossy =
  'packets are lost on the way: PFC on every hop for the class (dualpath qos check), or look for a bad cable at a switch (ibqueryerrors)';
const slowReceiver =
  'the receiver had no receive posted: its process was stopped or starved; look at its CPU limits and time-outs';
const congested =
  'more is sent than a link carries: look for several senders to one port, uneven routes, a slow receiver';

/** Errors in a million packets that a good cable does not have. */
const physicalLimit = 1e-6;
const transportLimit = 1e-5;
const congestionLimit = 1e-3;

const physical = (meaning: string): CounterMeaning => ({
  kind: 'physical',
  meaning,
  remedy: cable,
  limit: physicalLimit,
});
const lost = (meaning: string): CounterMeaning => ({
  kind: 'transport',
  meaning,
  remedy: lossy,
  limit: transportLimit,
});
const receiver = (meaning: string): CounterMeaning => ({
  kind: 'transport',
  meaning,
  remedy: slowReceiver,
  limit: transportLimit,
});
const congestion = (meaning: string, limit = congestionLimit): CounterMeaning => ({
  kind: 'congestion',
  meaning,
  remedy: congested,
  limit,
});

/** By the names of sysfs: counters/ (InfiniBand), hw_counters/ (mlx5, and soft-RoCE). */
export const counterMeanings: Readonly<Record<string, CounterMeaning>> = {
  symbol_error: physical('symbol errors on the wire'),
  link_error_recovery: physical('the link had to be trained anew'),
  link_downed: physical('the link went down'),
  port_rcv_errors: physical('packets arrived damaged'),
  port_rcv_remote_physical_errors: physical('packets arrived marked as damaged on an earlier link'),
  local_link_integrity_errors: physical('too many errors on the local link'),
  excessive_buffer_overrun_errors: physical('receive buffers overran'),
  rx_icrc_encapsulated: physical('RoCE packets arrived with a wrong checksum'),
  port_xmit_discards: lost('packets were dropped before sending'),
  out_of_sequence: lost('packets arrived out of sequence'),
  packet_seq_err: lost('peers answered that packets were missing'),
  implied_nak_seq_err: lost('acknowledgements skipped requests'),
  local_ack_timeout_err: lost('acknowledgements did not come in time'),
  roce_adp_retrans: lost('adaptive retransmissions'),
  out_of_seq_request: lost('requests arrived out of sequence'),
  rcvd_seq_err: lost('peers answered that packets were missing'),
  completer_retry_err: lost('requests were sent again'),
  retry_exceeded_err: lost('requests were given up after all retries'),
  duplicate_request: lost('requests arrived again'),
  out_of_buffer: receiver('messages found no receive posted'),
  rnr_nak_retry_err: receiver('peers were not ready to receive (RNR)'),
  rcvd_rnr_err: receiver('peers were not ready to receive (RNR)'),
  send_rnr_err: receiver('this side was not ready to receive (RNR)'),
  retry_rnr_exceeded_err: receiver('requests were given up because the peer never became ready'),
  np_cnp_sent: congestion('congestion notifications (CNP) sent'),
  rp_cnp_handled: congestion('congestion notifications (CNP) received: this port was slowed down'),
  np_ecn_marked_roce_packets: congestion('packets arrived with ECN marks'),
  port_xmit_wait: congestion('ticks in which data waited for credits or a pause to end', 100),
};

/** Packets sent and received, whichever of these there are. */
const packetCounters = ['port_xmit_packets', 'port_rcv_packets', 'sent_pkts', 'rcvd_pkts'];

export type Counters = Readonly<Record<string, number>>;

/** Every counter of a port that is known here, and packets; `folder` is the port's in sysfs. */
export function readCounters(view: HostView, folder: string): Counters {
  const names = [...Object.keys(counterMeanings), ...packetCounters];
  const entries = names.flatMap((name): [string, number][] => {
    const value =
      readNumber(view, `${folder}/hw_counters/${name}`) ?? readNumber(view, `${folder}/counters/${name}`);
    return value === null ? [] : [[name, value]];
  });
  return Object.fromEntries(entries);
}

export interface CounterExcess {
  readonly name: string;
  readonly count: number;
  readonly packets: number;
  readonly meaning: CounterMeaning;
}

/** What is more than it should be, of counters since boot or of a difference of two readings. */
export function excesses(counters: Counters): CounterExcess[] {
  const packets = packetCounters.reduce((sum, name) => sum + (counters[name] ?? 0), 0);
  return Object.entries(counterMeanings).flatMap(([name, meaning]) => {
    const count = counters[name] ?? 0;
    return count > 0 && count > meaning.limit * packets ? [{ name, count, packets, meaning }] : [];
  });
}

/** Later less earlier; a counter that has wrapped or was cleared counts from 0. */
export function counterDeltas(before: Counters, after: Counters): Counters {
  const deltas = Object.entries(after).map(([name, value]): [string, number] => {
    const earlier = before[name] ?? 0;
    return [name, value >= earlier ? value - earlier : value];
  });
  return Object.fromEntries(deltas);
}
