/** Classes of traffic and what each is to have, once, for every layer. */
import { z } from 'zod';
import { DualPathError } from '../errors/index.js';
import { trafficClasses, trafficClassNames, type TrafficClasses } from '../rdma/index.js';

/** `other` is what nobody marked: SL 0, DSCP 0. */
export const qosClassNames = ['other', ...trafficClassNames] as const;
export type QosClassName = (typeof qosClassNames)[number];

export interface QosClass {
  /** The part of a link that it is to have while all classes are busy, above 0; all together 1. */
  readonly share: number;
  /** 'low': it waits for the others, as far as its share allows. */
  readonly priority: 'high' | 'low';
  readonly serviceLevel: number;
  readonly virtualLane: number;
  readonly dscp: number;
  /** 802.1p priority and traffic class of NICs and switches, 0 to 7. */
  readonly trafficClass: number;
  /** PFC on RoCE. */
  readonly lossless: boolean;
}

export interface QosDescription {
  readonly classes: Readonly<Record<QosClassName, QosClass>>;
  /** What high priority sends before low priority has a turn, in 4096 bytes; 'from_shares': worked out. */
  readonly highLimit: number | 'from_shares';
  /** Who stands in InfiniBand's low-priority table: as in the paper every lane, or only those of low priority. */
  readonly lowTable: 'every_lane' | 'low_lanes';
}

const whole = (least: number, most: number): z.ZodNumber => {
  const error = `a whole number from ${least} to ${most}`;
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
};
const shareError = 'a number above 0 and below 1';
const classFields = {
  share: z.number({ error: shareError }).gt(0, { error: shareError }).lt(1, { error: shareError }),
  priority: z.enum(['high', 'low'], { error: "'high' or 'low'" }),
  service_level: whole(0, 15),
  virtual_lane: whole(0, 14),
  dscp: whole(0, 63),
  traffic_class: whole(0, 7),
  lossless: z.boolean({ error: 'true or false' }),
};
const classOf = (
  share: number,
  priority: 'high' | 'low',
  level: number,
  dscp: number,
): z.ZodDefault<z.ZodObject> => {
  // Traffic classes as NICs and switches map DSCPs when nobody tells them otherwise: by the upper three bits.
  const numbers = { service_level: level, virtual_lane: level, dscp, traffic_class: dscp >> 3 };
  const values: Record<string, unknown> = { share, priority, ...numbers, lossless: true };
  const shape = Object.fromEntries(
    Object.entries(classFields).map(([name, schema]) => [
      name,
      (schema as z.ZodType).default(values[name] as never),
    ]),
  );
  return z.strictObject(shape).prefault({}) as unknown as z.ZodDefault<z.ZodObject>;
};

/** The default is the paper's: inference above KV-Cache, which has what is left and 1 % for certain. */
export const qosSchema = z.strictObject({
  classes: z
    .strictObject({
      other: classOf(0.33, 'high', 0, 0),
      inference: classOf(0.33, 'high', 1, 26),
      kv: classOf(0.01, 'low', 2, 10),
      control: classOf(0.33, 'high', 3, 46),
    })
    .prefault({}),
  high_limit: z
    .union([whole(1, 254), z.literal('from_shares')], {
      error: "a whole number from 1 to 254, or 'from_shares'",
    })
    .default(240),
  low_table: z
    .enum(['every_lane', 'low_lanes'], { error: "'every_lane' or 'low_lanes'" })
    .default('every_lane'),
});

const sumTolerance = 1e-6;

/** @throws INVALID_ARGUMENT naming the place, what was expected and what was found */
export function parseQos(value: unknown, place: string): QosDescription {
  const result = qosSchema.safeParse(value);
  if (!result.success) throw schemaError(result.error.issues, value, place);
  const { classes, high_limit: highLimit, low_table: lowTable } = result.data;
  const of = (name: QosClassName): QosClass => {
    const given = classes[name] as Record<keyof typeof classFields, never>;
    const { share, priority, dscp, lossless } = given;
    return {
      ...{ share, priority, serviceLevel: given.service_level, virtualLane: given.virtual_lane },
      ...{ dscp, trafficClass: given.traffic_class, lossless },
    };
  };
  const description: QosDescription = {
    classes: { other: of('other'), inference: of('inference'), kv: of('kv'), control: of('control') },
    highLimit,
    lowTable,
  };
  check(description, place);
  return description;
}

export const defaultQos: QosDescription = parseQos({}, 'the default');

/** What the transport has for its queue pairs. @throws INVALID_ARGUMENT where inference and kv cannot be told apart */
export function trafficClassesOf({ classes }: QosDescription): TrafficClasses {
  return trafficClasses(
    Object.fromEntries(
      trafficClassNames.map((name) => {
        const { serviceLevel, virtualLane, dscp } = classes[name];
        return [name, { serviceLevel, virtualLane, dscp }];
      }),
    ),
  );
}

function check(description: QosDescription, place: string): void {
  const { classes } = description;
  const all = qosClassNames.map((name) => ({ name, ...classes[name] }));
  const sum = all.reduce((total, { share }) => total + share, 0);
  if (Math.abs(sum - 1) > sumTolerance) {
    const shares = all.map(({ name, share }) => `${name} ${share}`).join(' + ');
    throw invalid(`${place}: the shares are ${shares} = ${Number(sum.toFixed(6))}; together they must be 1`);
  }
  for (const priority of ['high', 'low'] as const) {
    if (all.some((one) => one.priority === priority)) continue;
    throw invalid(`${place}: no class has priority '${priority}'; both tables of an arbiter need one`);
  }
  for (const key of ['serviceLevel', 'dscp'] as const) {
    const seen = new Map<number, QosClassName>();
    for (const one of all) {
      const other = seen.get(one[key]);
      if (other === undefined) seen.set(one[key], one.name);
      else throw invalid(`${place}: ${other} and ${one.name} have the same ${snake(key)}, ${one[key]}`);
    }
  }
  for (const key of ['virtualLane', 'trafficClass'] as const) {
    const clash = all.find((a) =>
      all.some((b) => a[key] === b[key] && (a.priority !== b.priority || a.lossless !== b.lossless)),
    );
    if (clash === undefined) continue;
    throw invalid(
      `${place}: ${clash.name} shares ${snake(key)} ${clash[key]} with a class of another priority or losslessness; ` +
        'such classes need queues of their own',
    );
  }
  trafficClassesOf(description);
}

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

function schemaError(issues: readonly z.core.$ZodIssue[], value: unknown, place: string): DualPathError {
  const issue = issues.find(({ code }) => code === 'unrecognized_keys') ?? issues[0]!;
  const where = issue.path.map(String).join('.') || 'the document';
  if (issue.code === 'unrecognized_keys') {
    return invalid(
      `${place}: unknown key '${issue.keys[0]}' in ${where}; 'dualpath qos plan --json' prints a description with every key`,
    );
  }
  const found = issue.path.reduce<unknown>(
    (inner, key) => (inner as Record<PropertyKey, unknown> | undefined)?.[key],
    value,
  );
  return invalid(`${place}: ${where} is ${JSON.stringify(found) ?? 'missing'}; expected ${issue.message}`);
}

function invalid(message: string): DualPathError {
  return new DualPathError('INVALID_ARGUMENT', message);
}

/** The description as a file has it. */
export function qosDocument({ classes, highLimit, lowTable }: QosDescription): object {
  const of = (name: QosClassName): object =>
    Object.fromEntries(Object.entries(classes[name]).map(([key, value]) => [snake(key), value as unknown]));
  return {
    classes: Object.fromEntries(qosClassNames.map((name) => [name, of(name)])),
    high_limit: highLimit,
    low_table: lowTable,
  };
}
