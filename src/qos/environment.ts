/** What puts an engine's collectives on the inference class: settings of the libraries that carry them. */
import type { QosDescription } from './description.js';

/** SL for InfiniBand and the IP traffic class (DSCP << 2) for RoCE, of NCCL, NVSHMEM and UCX. */
export function collectiveEnvironment({ classes }: QosDescription): Record<string, string> {
  const level = String(classes.inference.serviceLevel);
  const traffic = String(classes.inference.dscp << 2);
  return {
    NCCL_IB_SL: level,
    NCCL_IB_TC: traffic,
    // Of its receivers' clear-to-send messages, which newer releases set apart.
    NCCL_IB_FIFO_TC: traffic,
    NVSHMEM_IB_SL: level,
    NVSHMEM_IB_TRAFFIC_CLASS: traffic,
    UCX_IB_SL: level,
    UCX_IB_TRAFFIC_CLASS: traffic,
  };
}
