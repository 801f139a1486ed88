"""The InferenceReplica (`spec/omenative.md` §1): one component of an InferenceService with its Instances.

The manager writes it, both spec and status, so the schema trusts it where it may grow: rows, retry blocks and holds
keep fields they don't list, and steps and waiting tokens may be any word. An API server with older definitions then
loses nothing that a newer manager has noted down before it acted.
"""

from __future__ import annotations

from typing import Final

from deploy.schema.parts import STRATEGIES, Components, lifecycle
from deploy.schema.words import (
    CONDITIONS,
    Schema,
    any_list,
    anything,
    flag,
    moment,
    number,
    number_or_percent,
    rule,
    sequence,
    structure,
    text,
    with_rules,
)

_NAME: Final = 253

PHASES: Final = ("Pending", "Creating", "Ready", "Updating", "Restarting", "Migrating", "Failed", "Deleting")
OPERATIONS: Final = ("Create", "Update", "Restart", "Migrate", "Delete")
GATES: Final = ("Plan", "Pairing", "Ratio", "Sequential", "Budget", "RetryBlock", "Held")

HOLD: Final = structure(
    "Why no Instance can move now; absent while the rollout advances.",
    {
        "gate": text("What stops it.", values=GATES),
        "reason": text("Why, with the pods that are in the way."),
        "target": text("The revision being rolled out."),
        "since": moment("Since when this gate has stopped this target."),
    },
    grows=True,
)

COUNTS: Final[dict[str, Schema]] = {
    "replicas": number("Instances, whatever their phase."),
    "readyReplicas": number("Instances whose containers are ready."),
    "servingReplicas": number("Instances in rotation."),
    "availableReplicas": number("Instances in rotation and ready for minReadySeconds."),
    "updatedReplicas": number("Instances on the update revision."),
    "updatedReadyReplicas": number("Instances on the update revision that are Ready."),
    "currentRevision": text("The revision that was last rolled out completely."),
    "updateRevision": text("The revision that the spec asks for."),
    "collisionCount": number("How often a revision's name was taken."),
    "labelSelector": text("Selects the pods of the component."),
}


def _operation() -> Schema:
    return structure(
        "What is being done to the Instance.",
        {
            "id": text("Name of this attempt."),
            "type": text("What kind of operation.", values=OPERATIONS),
            "step": text("How far it has come."),
            "startedAt": moment("When it was opened."),
            "lastProgressAt": moment("When it last advanced."),
            "deadline": moment("When it fails unless it has finished; absent while the clock is parked, or for ever."),
            "retryCount": number("Which repetition it is."),
            "targetRevision": text("The revision it builds."),
            "reason": text("Why it was opened."),
            "waiting": text("What outside the manager it waits for."),
            "capacityRefusedAt": moment("When capacity was refused."),
            "strategy": text("The strategy it was opened with.", values=STRATEGIES),
            "surgeIndex": number("The Instance that replaces this one."),
            "fromNode": text("The node it moves away from."),
            "hintTargetNodes": sequence("Accepted, has no effect.", {"type": "string"}),
            "requestUUID": text("The migration request it serves."),
        },
        grows=True,
    )


def _row() -> Schema:
    return structure(
        "One Instance.",
        {
            "index": number("Its number; numbers may have gaps.", least=0),
            "incarnation": number("How often its pods have been built anew.", wide=True),
            "phase": text("Its phase.", values=PHASES),
            "runningRevision": text("The revision that serves."),
            "targetRevision": text("The revision that an open operation builds."),
            "podCount": number("Its pods."),
            "readyPodCount": number("Pods whose containers are ready."),
            "scheduledPodCount": number("Pods that have a node."),
            "nodesOccupied": sequence("Nodes of its pods.", {"type": "string"}),
            "servingPodCount": number("Pods in rotation."),
            "availablePodCount": number("Pods in rotation and ready for minReadySeconds."),
            "admitted": flag("Whether its removal has been admitted."),
            "conditions": CONDITIONS,
            "readySince": moment("When it last became Ready."),
            "operation": _operation(),
            "activeOrdinal": number("Ordinal of the pod that serves; a surge goes to the other one.", least=0),
            "lastFailure": structure(
                "What failed last.",
                {
                    "podName": text("The pod."),
                    "containerName": text("The container."),
                    "reason": text("Why, in one word."),
                    "exitCode": number("Its exit code."),
                    "message": text("Why, in a sentence."),
                    "time": moment("When it was noticed."),
                },
                grows=True,
            ),
            "announced": sequence("Events that are recorded once an episode.", {"type": "string"}, distinct=True),
        },
        required=("index",),
        grows=True,
    )


def replica_spec(components: Components) -> Schema:
    """Its spec (§1.2)."""
    runner = structure(
        "One kind of pod of an Instance.",
        {
            "name": text("default alone, or leader together with worker.", values=("default", "leader", "worker")),
            "size": number("How many such pods an Instance has.", least=1),
            "template": components.template(),
        },
        required=("name",),
    )
    spec = structure(
        "What should be. Written by the manager from the InferenceService; change that instead.",
        {
            "parentRef": structure(
                "The InferenceService; immutable.",
                {"name": text("Its name.", longest=_NAME)},
                required=("name",),
            ),
            "component": text("Which component it is; immutable.", values=("engine", "decoder", "router")),
            "replicas": number("How many Instances; 1 when unset.", least=0),
            "minReadySeconds": number("Seconds a pod must stay ready before it counts as available.", least=0),
            "runners": sequence("The pods of an Instance.", runner, keys=("name",)) | {"minItems": 1, "maxItems": 3},
            "topologyKey": text("Node label whose value workers share with their leader."),
            "topologySpread": text("How Instances are spread.", values=("Preferred", "Required")),
            "topologySpreadKey": text("Node label over whose values Instances are spread."),
            "pairingProtocol": text("What engine and decoder must agree on to be paired.", longest=63),
            "lifecycle": lifecycle(budgets=False, both_zero=False),
            "pacing": structure(
                "What a rollout group imposes.",
                {
                    "partition": number("Instances that stay on the old revision.", least=0),
                    "maxUnavailable": number_or_percent("Instances that can be out of service."),
                    "rollbackToRevision": text("Revision to go back to, whatever the spec asks for."),
                },
                grows=True,
            ),
            "autoscaler": anything("Accepted, has no effect."),
            "paused": flag("Whether no update may start."),
            "pauseMode": text(
                "What a pause leaves running; Recover unless said otherwise.", values=("Recover", "Freeze", "")
            ),
            "revisionHistoryLimit": number("Old revisions to keep.", least=1),
            "modelRef": anything("Of replicas without a parent; has no effect with this manager."),
            "runtimeRef": anything("Of replicas without a parent; has no effect with this manager."),
            "placementExecution": anything("Accepted, has no effect: other clusters."),
            "placementReplicaLimit": number("Accepted, has no effect: other clusters."),
        },
        required=("component",),
    )
    return with_rules(
        spec,
        rule("self.component == oldSelf.component", "spec.component is immutable"),
        rule(
            "has(self.parentRef) == has(oldSelf.parentRef)"
            " && (!has(self.parentRef) || self.parentRef.name == oldSelf.parentRef.name)",
            "spec.parentRef is immutable",
        ),
    )


def replica_status() -> Schema:
    """Its status (§1.4)."""
    retry = structure(
        "What is known of failed attempts toward one revision.",
        {
            "targetRevision": text("The revision."),
            "state": text("Whether and when it is tried again.", values=("Backoff", "Held", "RetryInProgress")),
            "attemptsStarted": number("Attempts that count."),
            "nextRetryAt": moment("When the next attempt may start."),
            "firstFailureAt": moment("When an attempt first failed."),
            "lastFailureAt": moment("When an attempt last failed."),
            "reason": text("Why it failed."),
        },
        required=("targetRevision",),
        grows=True,
    )
    return structure(
        "What is. Written by the manager.",
        COUNTS
        | {
            "observedGeneration": number("Generation of the spec that was acted on.", wide=True),
            # Replaced as a whole: the manager alone writes it. By key, the API server would keep a record of every
            # field of every row: with 100 rows three times the CPU of each write and twice the object.
            "instanceStatuses": sequence("The Instances.", _row()),
            "instanceStatusEncoding": text("How the Instances are written down, if not as a list."),
            "instanceStatusColumns": anything("The Instances, if not written down as a list."),
            "retryBlocks": sequence("Revisions that failed.", retry, keys=("targetRevision",)),
            "migrations": any_list("Moves to other nodes."),
            "traffic": any_list("Shares of traffic by revision."),
            "coordinationGroupRef": anything("The rollout group it belongs to."),
            "conditions": CONDITIONS,
            "rolloutHold": HOLD,
        },
        grows=True,
    )
