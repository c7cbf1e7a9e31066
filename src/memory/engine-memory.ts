/**
 * Geometries of what engines have: for each KV group its page table, and for each of its layers the tensors that
 * its pages lie in. A tensor is memory, a shape and strides, as frameworks describe it; nothing is copied or
 * converted to adopt it.
 */
import type { NativePagePart, NativePages } from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout, PlacedPlane } from '../layout/index.js';
import type { Region } from './region.js';

/** What an index of a tensor counts. `plane`: K and V; `layer`: the layers of the group, in order. */
export type Axis = 'layer' | 'plane' | 'page' | 'token' | 'head' | 'value';

export interface Tensor {
  readonly memory: Region;
  /** Of the first element, in the memory; default 0. */
  readonly offsetBytes?: number;
  readonly elementBytes: number;
  readonly shape: readonly number[];
  /** In elements, as torch's `stride()`; left out: contiguous, the last index fastest. */
  readonly strides?: readonly number[];
  /** What each index counts. Without `token`, pages hold one token each. */
  readonly axes: readonly Axis[];
}

/** A run of each token's bytes in a page. */
export interface PlanePart {
  readonly memory: Region;
  readonly offsetBytes: number;
  readonly pageStrideBytes: number;
  readonly tokenStrideBytes: number;
  readonly bytes: number;
}

/** The parts of a plane in the order of a token's bytes. */
export type PlaneParts = readonly PlanePart[];

export interface GroupMemory {
  readonly pages: number;
  readonly pageTokens: number;
  /** For each layer of the group its planes, as the model has them. */
  readonly layers: readonly (readonly PlaneParts[])[];
}

/** Memory of every group of the model by the group's name. */
export type EngineMemory = Readonly<Record<string, GroupMemory>>;

function bad(message: string, details: Record<string, string | number>): DualPathError {
  return new DualPathError('INVALID_ARGUMENT', message, details);
}

interface Axes {
  readonly size: (axis: Axis) => number;
  /** In bytes; 0 for an axis that the tensor has not. */
  readonly stride: (axis: Axis) => number;
}

function axesOf(tensor: Tensor): Axes {
  const { shape, axes, elementBytes } = tensor;
  const strides = tensor.strides ?? contiguous(shape);
  const whole = (value: number): boolean => Number.isSafeInteger(value) && value > 0;
  const fits = shape.length === axes.length && strides.length === axes.length;
  const named = new Set(axes).size === axes.length && axes.includes('page');
  if (!fits || !named || !shape.every(whole) || !strides.every(whole) || !whole(elementBytes)) {
    throw bad(
      `a tensor of shape [${shape.join(', ')}], strides [${strides.join(', ')}] and axes [${axes.join(', ')}], ` +
        `${elementBytes} bytes an element; positive whole numbers are needed, one of each for every axis, each axis ` +
        'once, page among them',
      { shape: shape.join(), strides: strides.join(), axes: axes.join() },
    );
  }
  const of = (values: readonly number[], axis: Axis, none: number): number =>
    axes.includes(axis) ? values[axes.indexOf(axis)]! : none;
  return {
    size: (axis) => of(shape, axis, 1),
    stride: (axis) => of(strides, axis, 0) * elementBytes,
  };
}

function contiguous(shape: readonly number[]): number[] {
  const strides: number[] = [];
  let stride = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= shape[i]!;
  }
  return strides;
}

/** A plane's parts: heads lie together where they are neighbours, or else each by itself. */
function partsOf(tensor: Tensor, { size, stride }: Axes, offsetBytes: number): PlaneParts {
  const headBytes = size('value') * tensor.elementBytes;
  if (size('value') > 1 && stride('value') !== tensor.elementBytes) {
    throw bad(
      `a tensor whose values are ${stride('value')} bytes apart, of ${tensor.elementBytes} bytes each; a head's ` +
        'values must lie together',
      { stride_bytes: stride('value'), element_bytes: tensor.elementBytes },
    );
  }
  const together = size('head') === 1 || stride('head') === headBytes;
  const [parts, bytes] = together ? [1, headBytes * size('head')] : [size('head'), headBytes];
  return Array.from({ length: parts }, (_, head) => ({
    memory: tensor.memory,
    offsetBytes: offsetBytes + head * stride('head'),
    pageStrideBytes: stride('page'),
    tokenStrideBytes: stride('token') === 0 ? bytes : stride('token'),
    bytes,
  }));
}

/**
 * A group whose pages lie in such tensors: one for each layer, or for each layer one a plane (K, V), or one that
 * has an axis for either.
 * @throws INVALID_ARGUMENT for shapes, strides and axes that do not go together
 */
export function pagedTensors(tensors: readonly (Tensor | readonly Tensor[])[]): GroupMemory {
  let grid: { readonly pages: number; readonly pageTokens: number } | undefined;
  const layers: PlaneParts[][] = [];
  for (const given of tensors) {
    const planes: PlaneParts[][] = [];
    for (const tensor of isList(given) ? given : [given]) {
      const axes = axesOf(tensor);
      const its = { pages: axes.size('page'), pageTokens: axes.size('token') };
      grid ??= its;
      if (its.pages !== grid.pages || its.pageTokens !== grid.pageTokens) {
        throw bad(
          `tensors of ${its.pages} pages of ${its.pageTokens} tokens and of ${grid.pages} pages of ` +
            `${grid.pageTokens} in one group; a group has one page table: make two groups of it`,
          { pages: its.pages, page_tokens: its.pageTokens },
        );
      }
      for (let layer = 0; layer < axes.size('layer'); layer++) {
        const ofLayer = (planes[layer] ??= []);
        for (let plane = 0; plane < axes.size('plane'); plane++) {
          const at = (tensor.offsetBytes ?? 0) + layer * axes.stride('layer') + plane * axes.stride('plane');
          ofLayer.push(partsOf(tensor, axes, at));
        }
      }
    }
    layers.push(...planes);
  }
  if (grid === undefined) throw bad('no tensors; pass those of every layer of the group', {});
  return { ...grid, layers };
}

const isList = (value: Tensor | readonly Tensor[]): value is readonly Tensor[] => Array.isArray(value);

/**
 * The geometry of an engine's memory for `TrafficManager.adopt`.
 * @throws INVALID_ARGUMENT when groups, layers, planes or bytes per token are not those of the model
 */
export function engineGeometry(layout: BlockLayout, memory: EngineMemory): NativePages {
  const { groups, name } = layout.model;
  const strangers = Object.keys(memory).filter((key) => !groups.some((group) => group.name === key));
  const missing = groups.filter((group) => !(group.name in memory)).map((group) => group.name);
  if (strangers.length > 0 || missing.length > 0) {
    throw bad(
      `model '${name}' has the groups ${groups.map((group) => group.name).join(', ')}; memory is given for ` +
        `${Object.keys(memory).join(', ') || 'none'}: give it for each and no other`,
      { model: name, missing: missing.join(), unknown: strangers.join() },
    );
  }
  const next = groups.map((group) => {
    checkGroup(layout, group.name, group.layers, memory[group.name]!);
    return { name: group.name, group: memory[group.name]!, layer: 0 };
  });
  const layers = Array.from({ length: layout.layers }, (_, layer) => {
    const planes = layout.planesOf(layer);
    return next.flatMap((its, table) => {
      const placed = planes.filter((plane) => plane.group === its.name);
      if (placed.length === 0) return [];
      const parts = its.group.layers[its.layer++]!;
      return placed.map(({ windowTokens }, plane) => ({
        table,
        windowTokens,
        parts: parts[plane]!.map(nativePart),
      }));
    });
  });
  const tables = next.map(({ name: group, group: { pages, pageTokens } }) => ({
    name: group,
    pages,
    pageTokens,
  }));
  return { blockTokens: layout.blockTokens, tables, layers };
}

const nativePart = ({ memory, ...part }: PlanePart): NativePagePart => ({ region: memory.handle, ...part });

function checkGroup(
  layout: BlockLayout,
  name: string,
  modelLayers: readonly number[],
  memory: GroupMemory,
): void {
  if (memory.layers.length !== modelLayers.length) {
    throw bad(
      `group '${name}' has ${modelLayers.length} layers, memory of ${memory.layers.length} is given`,
      {
        group: name,
        layers: modelLayers.length,
        given: memory.layers.length,
      },
    );
  }
  memory.layers.forEach((planes, index) => {
    const layer = modelLayers[index]!;
    const expected = layout.planesOf(layer).filter((plane: PlacedPlane) => plane.group === name);
    const bytes = planes.map((parts) => parts.reduce((sum, part) => sum + part.bytes, 0));
    const wanted = expected.map((plane) => plane.bytesPerToken);
    if (bytes.join() === wanted.join()) return;
    throw bad(
      `group '${name}', layer ${layer}: planes of [${bytes.join(', ')}] bytes a token are given, the model has ` +
        `[${wanted.join(', ')}] (${expected.map((plane) => plane.plane).join(', ')}) on this shard; check heads, head ` +
        'size and element size against the model and the shard',
      { group: name, layer, given_bytes: bytes.join(), model_bytes: wanted.join() },
    );
  });
}
