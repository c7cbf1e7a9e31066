import { DualPathError } from '../errors/index.js';
import { requireFinite } from './check.js';
import { attentionPairs, type BatchPart, type BatchTime, type TimeModel } from './time-model.js';

/** A measured forward, or the attention in it. */
export interface ProfilePoint {
  readonly flops: number;
  readonly seconds: number;
}

/** How well a fit meets its profile. */
export interface FitQuality {
  readonly points: number;
  /** Coefficient of determination; 1 is perfect. 1, too, where all seconds are equal and met. */
  readonly rSquared: number;
  /** Largest |predicted - measured| / measured. */
  readonly maxRelativeError: number;
  readonly meanRelativeError: number;
}

/**
 * Seconds as a function of FLOPs that never falls: isotonic regression over the profile (pool adjacent violators;
 * Barlow, Bartholomew, Bremner, Brunk 1972), linear between the pooled points. Below the first point it stays at
 * that point's time, which is what a launch costs; beyond the last it goes on with the mean slope of the upper
 * half, so that a batch larger than any profiled is not thought free.
 */
export class FittedTime {
  readonly quality: FitQuality;
  readonly #flops: readonly number[];
  readonly #seconds: readonly number[];
  readonly #slopeBeyond: number;

  /** @throws INVALID_ARGUMENT without two different FLOP counts, or for points that are negative or no numbers */
  constructor(profile: readonly ProfilePoint[]) {
    for (const { flops, seconds } of profile) {
      requireFinite('flops of a profile point', flops, 'not negative', 'count what the forward computes');
      requireFinite('seconds of a profile point', seconds, 'positive', 'measure the forward');
    }
    const pooled = poolAdjacentViolators(profile);
    this.#flops = pooled.map(({ flops }) => flops);
    this.#seconds = pooled.map(({ seconds }) => seconds);
    const last = pooled.at(-1);
    const middle = pooled[Math.floor((pooled.length - 1) / 2)];
    if (!last || !middle || new Set(profile.map(({ flops }) => flops)).size < 2) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `a profile of ${profile.length} points has fewer than 2 different FLOP counts: measure forwards of several sizes`,
        { points: profile.length },
      );
    }
    const rise = last === middle ? 0 : (last.seconds - middle.seconds) / (last.flops - middle.flops);
    // A profile that pools to a level says nothing of the slope; time in proportion is the safe reading.
    this.#slopeBeyond = rise > 0 ? rise : last.seconds / last.flops;
    this.quality = qualityOf(profile, (flops) => this.seconds(flops));
  }

  /** Predicted seconds for so many FLOPs. */
  seconds(flops: number): number {
    const last = this.#flops.length - 1;
    if (flops <= this.#flops[0]!) return this.#seconds[0]!;
    if (flops >= this.#flops[last]!) {
      return this.#seconds[last]! + (flops - this.#flops[last]!) * this.#slopeBeyond;
    }
    let low = 0;
    let high = last;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.#flops[middle]! <= flops) low = middle;
      else high = middle;
    }
    const share = (flops - this.#flops[low]!) / (this.#flops[high]! - this.#flops[low]!);
    return this.#seconds[low]! + share * (this.#seconds[high]! - this.#seconds[low]!);
  }
}

/** What a model computes, over all layers. */
export interface FlopCounts {
  /** Per new token outside attention. */
  readonly perNewToken: number;
  /** Per new token inside attention whatever its context, as in sparse attention over a fixed top-k. */
  readonly perAttentionToken: number;
  /** Per pair of a new token and a token it looks at. */
  readonly perAttentionPair: number;
}

/** A time model from measurements: FLOPs are counted, seconds are read off fitted profiles (paper, section 6). */
export class FittedTimeModel implements TimeModel {
  readonly attention: FittedTime;
  readonly total: FittedTime;
  readonly #flops: FlopCounts;

  /**
   * @param profiles by FLOPs of attention, and by FLOPs of the whole forward
   * @throws INVALID_ARGUMENT
   */
  constructor(
    flops: FlopCounts,
    profiles: { readonly attention: readonly ProfilePoint[]; readonly total: readonly ProfilePoint[] },
  ) {
    for (const [name, value] of Object.entries(flops)) {
      requireFinite(name, value as number, 'not negative', 'count the FLOPs of the model');
    }
    this.#flops = { ...flops };
    this.attention = new FittedTime(profiles.attention);
    this.total = new FittedTime(profiles.total);
  }

  predict(batch: readonly BatchPart[]): BatchTime {
    if (batch.length === 0) return { attentionS: 0, totalS: 0 };
    let newTokens = 0;
    let pairs = 0;
    for (const part of batch) {
      newTokens += part.newTokens;
      pairs += attentionPairs(part);
    }
    const attention = this.#flops.perAttentionToken * newTokens + this.#flops.perAttentionPair * pairs;
    const attentionS = this.attention.seconds(attention);
    const totalS = this.total.seconds(attention + this.#flops.perNewToken * newTokens);
    return { attentionS, totalS: Math.max(attentionS, totalS) };
  }
}

interface Pool {
  flops: number;
  seconds: number;
  points: number;
}

/** Points of equal FLOPs, and neighbours whose times fall, become their mean. */
function poolAdjacentViolators(profile: readonly ProfilePoint[]): Pool[] {
  const pools: Pool[] = [];
  for (const { flops, seconds } of [...profile].sort((a, b) => a.flops - b.flops)) {
    pools.push({ flops, seconds, points: 1 });
    for (let last = pools.length - 1; last > 0; last--) {
      const a = pools[last - 1]!;
      const b = pools[last]!;
      if (a.flops !== b.flops && a.seconds <= b.seconds) break;
      const points = a.points + b.points;
      a.flops = (a.flops * a.points + b.flops * b.points) / points;
      a.seconds = (a.seconds * a.points + b.seconds * b.points) / points;
      a.points = points;
      pools.pop();
    }
  }
  return pools;
}

function qualityOf(profile: readonly ProfilePoint[], predict: (flops: number) => number): FitQuality {
  const mean = profile.reduce((sum, { seconds }) => sum + seconds, 0) / profile.length;
  let residual = 0;
  let variance = 0;
  let worst = 0;
  let relative = 0;
  for (const { flops, seconds } of profile) {
    const error = predict(flops) - seconds;
    residual += error ** 2;
    variance += (seconds - mean) ** 2;
    worst = Math.max(worst, Math.abs(error) / seconds);
    relative += Math.abs(error) / seconds;
  }
  return {
    points: profile.length,
    rSquared: variance === 0 ? (residual === 0 ? 1 : 0) : 1 - residual / variance,
    maxRelativeError: worst,
    meanRelativeError: relative / profile.length,
  };
}
