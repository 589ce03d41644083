"""What the words of the page mean, for those who read it without METRICS.md: one place, a sentence or two each."""

from __future__ import annotations

DEFINITIONS = {
    "cost of communication": (
        "What the step would be shorter by if every transfer took no time and nothing else changed, found "
        "by replaying it. Waiting for a late rank stays, so it is none of it. Where a step can't be "
        "replayed it is an upper bound."
    ),
    "communication": "The time in which any collective was running, things that ran at once counted once.",
    "hidden by backward": (
        "The part of gradient communication beside backward compute: the overlap that DDP, ZeRO and FSDP "
        "are built for."
    ),
    "hidden by other compute": "The part beside forward or optimizer compute only.",
    "exposed": "The part beside no compute at all.",
    "floor": (
        "What these buckets can't avoid: a bucket can't start before its last gradient exists, and the "
        "last one has nothing left to hide behind. No more than was exposed."
    ),
    "excess": "Exposed gradient communication less the floor: what a better schedule could win back.",
    "waiting for a late rank": (
        "A collective moves nothing before its last rank arrives. The shortest of the ranks' durations is "
        "the transfer, the rest is waiting: no clocks are needed for that, but all ranks' traces are."
    ),
    "outside backward": "Collectives that forward or the optimizer launched: parameters, buffers, metrics.",
    "host-starved": (
        "Inside backward, the next compute kernel had not been launched yet. The network is not to blame, "
        "and a faster one returns none of it."
    ),
    "device blocked": (
        "Inside backward, the next compute kernel was launched and held back: by a wait, a hardware queue "
        "or its stream."
    ),
    "launched late": "After backward, and over by then had each bucket been launched when it was ready.",
    "queued": "After backward, behind other transfers: the link is full.",
    "tail": "The last bucket's own transfer, which no schedule hides.",
    "unattributed": "The rest, for which there is no name.",
    "ready": "When the bucket's last gradient had been copied into it, on the device.",
    "launched": "When the host asked for the collective.",
    "started": "When it began to run; it may wait for other ranks first.",
    "hidden": "Share of the bucket's duration on all ranks under backward compute, the median of the steps.",
    "overlap": "Gradient communication hidden by backward over all gradient communication of the step.",
    "late": (
        "Arrived last at a collective that moves nothing before all are there. By: the median time that "
        "the others had been waiting."
    ),
    "bus bandwidth": (
        "Bytes over transfer time, times 2(n-1)/n for an all-reduce and (n-1)/n for reduce-scatter, all- "
        "gather and all-to-all, as nccl-tests defines it: comparable with the link's rate, whatever the "
        "number of ranks. 1 GB is 1e9 bytes."
    ),
    "ring model": (
        "2(n-1) hops for an all-reduce, n-1 for the others, each of a latency, and the bytes at the "
        "link's rate; fitted to the quickest quarter of this recording's own transfers of each size, as long "
        "as they were, whether or not they shared the link. `stepscope predict` takes the gradients' alone, "
        "each as with the link to itself, and so may have a higher rate."
    ),
    "counted step": (
        "Recorded whole and past the warm-up, in which DDP rebuilds its buckets. Others are listed with "
        "the reason."
    ),
    "95 % interval": (
        "By resampling the steps: what the median could have been had other steps of the same run been "
        "recorded."
    ),
    "host-bound": "The device waited for launches in more than half of the step.",
    "headroom": "How many times slower the wire may get before the job is comm-bound.",
}
