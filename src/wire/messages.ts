/**
 * The messages of proto/dualpath/scheduler/v1/scheduler.proto as they are in JavaScript: names in camel case, 64-bit
 * numbers as numbers, what is absent left out. What comes from the network may be anything of these types.
 */

export interface VersionRangeMessage {
  readonly min?: number;
  readonly max?: number;
}

export interface FailureMessage {
  readonly code?: string;
  readonly message?: string;
  readonly status?: number;
}

export interface EngineMessageEntry {
  readonly name?: string;
  readonly incarnation?: number;
  readonly role?: number;
  readonly node?: string;
  readonly group?: string;
  readonly bufferBlocks?: number;
  readonly hbmBlocks?: number;
  readonly readRateBytesPerS?: number;
  readonly addresses?: Readonly<Record<string, string>>;
}

export interface AssignmentMessage {
  readonly request?: string;
  readonly admission?: number;
  readonly prefillEngine?: string;
  readonly decodeEngine?: string;
  readonly side?: number;
  readonly prefillReadBlocks?: number;
  readonly decodeReadBlocks?: number;
  readonly promptBlocks?: number;
  readonly prefillHbmBlocks?: number;
  readonly decodeHbmBlocks?: number;
  readonly promptTokens?: number;
  readonly hitTokens?: number;
  readonly maxNewTokens?: number;
  readonly epoch?: number;
  readonly attempt?: number;
  readonly payload?: Uint8Array;
  readonly resumeTokens?: readonly number[];
  readonly traceparent?: string;
}

export interface HeldMessage {
  readonly assignment?: AssignmentMessage;
  readonly done?: readonly number[];
  readonly failure?: FailureMessage;
}

export interface EngineHelloMessage {
  readonly version?: VersionRangeMessage;
  readonly model?: string;
  readonly group?: string;
  readonly engines?: readonly EngineMessageEntry[];
  readonly held?: readonly { readonly engine?: string; readonly held?: HeldMessage }[];
}

export interface LoadMessage {
  readonly engine?: string;
  readonly sequence?: number;
  readonly unfinishedRequests?: number;
  readonly unfinishedTokens?: number;
  readonly nodeReadQueueBlocks?: number;
  readonly freeHbmBlocks?: number;
  readonly lastAdmission?: number;
  readonly nodeReadBytes?: number;
  readonly nodeReadBusyS?: number;
}

export interface FetchMessage {
  readonly loads?: readonly LoadMessage[];
  readonly credits?: number;
}

export interface TokenReportMessage {
  readonly admission?: number;
  readonly first?: number;
  readonly tokens?: readonly number[];
}

export interface EngineMessage {
  sequence?: number;
  renewal?: number;
  hello?: EngineHelloMessage;
  fetch?: FetchMessage;
  stages?: { readonly admission?: number; readonly stages?: readonly number[]; readonly tokens?: number }[];
  tokens?: TokenReportMessage[];
  failures?: { readonly engine?: string; readonly admission?: number; readonly failure?: FailureMessage }[];
  lostEngines?: string[];
  drain?: boolean;
  leave?: boolean;
}

export interface EngineCommand {
  sequence?: number;
  ack?: number;
  renewed?: number;
  welcome?: {
    readonly version?: number;
    readonly epoch?: number;
    readonly leaseS?: number;
    readonly heartbeatS?: number;
  };
  peers?: EngineMessageEntry[];
  assignments?: AssignmentMessage[];
  revocations?: { readonly admission?: number; readonly failure?: FailureMessage }[];
  resends?: { readonly admission?: number; readonly first?: number }[];
  notices?: FailureMessage[];
  drained?: boolean;
}

export interface SubmissionMessage {
  readonly key?: string;
  readonly model?: string;
  readonly promptTokens?: number;
  readonly hitTokens?: number;
  readonly maxNewTokens?: number;
  readonly tenant?: string;
  readonly priority?: number;
  readonly deadlineS?: number;
  readonly payload?: Uint8Array;
  readonly traceparent?: string;
  readonly progress?: boolean;
  readonly receivedTokens?: readonly number[];
}

export interface RequestMessage {
  sequence?: number;
  hello?: { readonly version?: VersionRangeMessage; readonly client?: string };
  submissions?: SubmissionMessage[];
  cancellations?: string[];
  acknowledgements?: string[];
}

export interface RequestEvent {
  sequence?: number;
  welcome?: {
    readonly version?: number;
    readonly epoch?: number;
    readonly model?: string;
    readonly maxWaiting?: number;
    readonly maxPayloadBytes?: number;
  };
  accepted?: string[];
  refused?: { readonly key?: string; readonly failure?: FailureMessage; readonly retryAfterS?: number }[];
  progress?: {
    readonly key?: string;
    readonly stages?: readonly number[];
    readonly prefillEngine?: string;
    readonly decodeEngine?: string;
  }[];
  tokens?: { readonly key?: string; readonly first?: number; readonly tokens?: readonly number[] }[];
  ended?: {
    readonly key?: string;
    readonly failure?: FailureMessage;
    readonly attempts?: number;
    readonly tokens?: number;
    readonly decodeEngine?: string;
  }[];
}

export interface ExplainRequest {
  /** client/key */
  readonly request?: string;
}

export interface Explanation {
  readonly decisionsJson?: string;
}

export interface Description {
  readonly version?: VersionRangeMessage;
  readonly epoch?: number;
  readonly model?: string;
  readonly blockTokens?: number;
  readonly waiting?: number;
  readonly leased?: number;
  readonly maxWaiting?: number;
  readonly engines?: readonly EngineMessageEntry[];
}
