/** Memory and geometries as the add-on takes them (bindings/memory.cc, region.cc, geometry.cc). */
import type { NativeCudaDevice } from './device-types.js';

export interface NativeArenaFacts {
  readonly bytes: number;
  readonly hugePages: boolean;
  readonly locked: boolean;
  readonly kind: 'host' | 'emulated-hbm' | 'cuda';
}

export interface NativeArena {
  facts(): NativeArenaFacts;
  /** Undefined where the runtime allows no external buffers. */
  buffer(): ArrayBuffer | undefined;
  read(offset: number, bytes: Uint8Array): void;
  write(offset: number, bytes: Uint8Array): void;
}

/** Memory of an engine's own. */
export interface NativeRegion {
  facts(): NativeRegionFacts;
}

export interface NativeRegionFacts {
  readonly name: string;
  readonly bytes: number;
  /** Of its first byte, in this process. */
  readonly address: bigint;
  readonly kind: 'host' | 'emulated-hbm' | 'cuda';
  /** Of the slices that devices register, in order. */
  readonly sliceBytes: readonly number[];
}

export type NativeRegionOptions = { readonly name: string; readonly emulatedHbm?: boolean } & (
  | { readonly arena: NativeArena }
  | { readonly buffer: Uint8Array }
  | {
      readonly address: bigint;
      readonly bytes: number;
      readonly owner?: object;
      readonly cuda?: NativeCudaDevice;
    }
  | { readonly fd: number; readonly offsetBytes?: number; readonly bytes: number }
);

export interface NativePlane {
  readonly offsetBytes: number;
  readonly bytesPerToken: number;
  readonly tokenStrideBytes?: number;
  readonly windowTokens?: number;
}

export interface NativeGeometry {
  readonly arena: NativeArena;
  /** Memory beyond one arena: slots [k * slotsPerArena, (k + 1) * slotsPerArena) lie in the kth of all. */
  readonly moreArenas?: readonly NativeArena[];
  readonly slotsPerArena?: number;
  /** Of each arena's first slot in it. */
  readonly offsetBytes: number;
  readonly slotStrideBytes: number;
  readonly slots: number;
  readonly blockTokens: number;
  readonly layers: readonly { readonly offsetBytes: number; readonly planes: readonly NativePlane[] }[];
}

/** A run of a token's bytes that lies together in a page. */
export interface NativePagePart {
  readonly region: NativeRegion;
  /** Of token 0 of page 0. */
  readonly offsetBytes: number;
  readonly pageStrideBytes: number;
  readonly tokenStrideBytes: number;
  readonly bytes: number;
}

/** An engine's paged memory (native/memory/geometry.h). */
export interface NativePages {
  readonly blockTokens: number;
  readonly tables: readonly { readonly name: string; readonly pages: number; readonly pageTokens: number }[];
  readonly layers: readonly (readonly {
    readonly table: number;
    readonly windowTokens: number;
    readonly parts: readonly NativePagePart[];
  }[])[];
}

/** Blocks of a sequence, and which of their tokens an operation touches. */
export interface NativeBlockSpan {
  readonly firstBlock: number;
  readonly blocks: number;
  readonly tokenBegin: number;
  readonly tokenEnd: number;
  readonly windowEnd: number;
}
