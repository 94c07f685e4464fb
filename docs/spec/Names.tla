------------------------------- MODULE Names -------------------------------
(* One topic name that is deleted and created again: topic ids, versions of nodes, committed offsets, markers.

   What stands for what:
     Create, MarkDeleting, Remove   core/cluster/topic_store.py: create_topic, mark_deleting, remove_topic
     ReadTopic, ReadStates          core/cluster/metadata_listener.py: a broker reads the two nodes one after the other, late
     CreateStates, ChangeStates     core/cluster/topic_store.py: write_states; core/cluster/registry.py: change_states
     Commit, Load, FetchOffset      core/coordinator/group: committed offsets, their log, and tombstones
     EndTransaction, PassOver ...   core/coordinator/transaction/markers.py

   The constants Old... put rules back under which states, offsets or markers of one topic were taken for those of
   another topic of its name. TLC must find that with them. *)
EXTENDS Integers, FiniteSets

CONSTANTS
    Brokers,
    Ids,            \* how many topics of the name there are at most
    Writes,         \* how many changes of states there are at most
    Commits,        \* how many commits of offsets there are at most
    Moves,          \* how many times the coordinators move at most
    OldGuard,       \* TRUE: a change of states is guarded by the version of their node alone
    OldOffsets,     \* TRUE: committed offsets do not carry the id of their topic
    OldMarkers      \* TRUE: a coordinator takes a topic that its image does not have for a deleted one

VARIABLES
    topic,          \* the topic's own node: its id, 0 = there is none; and whether it is being deleted
    ids,            \* the last topic id
    states,         \* the node of the partition states: whose they are, its version (-1 = there is none), the value
    image,          \* by broker: the topic id that it has read, the version of the states node, and whose they are
    writes,
    offset,         \* the last record of the group's offset in its log: the topic that was consumed; 0 = tombstone, none
    coordinator,    \* the broker that coordinates the group and the transaction
    cache,          \* by broker the committed offset in memory, by the topic that was consumed; 0 = none
    asked,          \* what the group was given last: the topic that the offset is of, and the topic that it reads
    commits, moves,
    transaction,    \* the topic that a transaction has written to, its state, and whether its marker is written
    gone            \* ids of topics that were deleted

vars == <<topic, ids, states, image, writes, offset, coordinator, cache, asked, commits, moves, transaction, gone>>

NoTopic  == [id |-> 0, deleting |-> FALSE]
NoStates == [id |-> 0, version |-> -1, value |-> 0]

Init ==
    /\ topic = [id |-> 1, deleting |-> FALSE] /\ ids = 1 /\ gone = {}
    /\ states = [id |-> 1, version |-> 0, value |-> 1]
    /\ image = [b \in Brokers |-> [id |-> 1, version |-> 0, of |-> 1]]
    /\ writes = 0 /\ commits = 0 /\ moves = 0
    /\ offset = 0
    /\ coordinator \in Brokers
    /\ cache = [b \in Brokers |-> 0]
    /\ asked = [of |-> 0, reads |-> 0]
    /\ transaction = [id |-> 0, state |-> "empty", marker |-> FALSE]

Names == <<topic, ids, states, image, writes, gone>>
Offsets == <<offset, cache, asked, commits>>

(* ---- the nodes of the topic *)

Create ==
    /\ topic = NoTopic /\ ids < Ids
    /\ ids' = ids + 1
    /\ topic' = [id |-> ids + 1, deleting |-> FALSE]
    /\ states' = NoStates
    /\ UNCHANGED <<image, writes, gone, Offsets, coordinator, moves, transaction>>

MarkDeleting ==
    /\ topic.id # 0 /\ ~topic.deleting
    /\ topic' = [topic EXCEPT !.deleting = TRUE]
    /\ gone' = gone \cup {topic.id}
    /\ UNCHANGED <<ids, states, image, writes, Offsets, coordinator, moves, transaction>>

Remove ==
    /\ topic.deleting
    /\ topic' = NoTopic /\ states' = NoStates
    /\ UNCHANGED <<ids, image, writes, gone, Offsets, coordinator, moves, transaction>>

ReadTopic(b) ==
    LET id == IF topic.deleting THEN 0 ELSE topic.id
    IN /\ image[b].id # id
       /\ image' = [image EXCEPT ![b] = [id |-> id, version |-> -1, of |-> id]]
       (* A coordinator that learns of a deletion writes a tombstone, and forgets the offset. *)
       /\ IF b = coordinator /\ cache[b] # 0 /\ cache[b] # id
          THEN cache' = [cache EXCEPT ![b] = 0] /\ offset' = 0
          ELSE UNCHANGED <<cache, offset>>
       /\ UNCHANGED <<topic, ids, states, writes, gone, asked, commits, coordinator, moves, transaction>>

(* The states of another topic say nothing of this one. The old rule took over the version of their node all the same. *)
ReadStates(b) ==
    /\ image[b].id # 0
    /\ OldGuard \/ states.id = image[b].id \/ states = NoStates
    /\ image[b].version # states.version
    /\ image' = [image EXCEPT ![b].version = states.version]
    /\ UNCHANGED <<topic, ids, states, writes, gone, Offsets, coordinator, moves, transaction>>

(* A change that was decided about the topic and the version in the image *)
ChangeStates(b) ==
    /\ writes < Writes
    /\ image[b].id # 0 /\ image[b].version >= 0
    /\ states.version = image[b].version
    /\ OldGuard \/ (topic.id = image[b].id /\ ~topic.deleting)
    /\ states' = [id |-> image[b].id, version |-> states.version + 1, value |-> writes + 2]
    /\ image' = [image EXCEPT ![b].version = states.version + 1]
    /\ writes' = writes + 1
    /\ UNCHANGED <<topic, ids, gone, Offsets, coordinator, moves, transaction>>

CreateStates(b) ==
    /\ image[b].id # 0 /\ states = NoStates /\ image[b].version = -1
    /\ topic.id = image[b].id /\ ~topic.deleting
    /\ states' = [id |-> image[b].id, version |-> 0, value |-> 1]
    /\ UNCHANGED <<topic, ids, image, writes, gone, Offsets, coordinator, moves, transaction>>

(* ---- the group's offset *)

Commit ==
    /\ commits < Commits /\ image[coordinator].id # 0 /\ image[coordinator].id = topic.id
    /\ offset' = topic.id
    /\ cache' = [cache EXCEPT ![coordinator] = topic.id]
    /\ commits' = commits + 1
    /\ UNCHANGED <<Names, asked, coordinator, moves, transaction>>

(* Another broker coordinates: it reads the log. The new rule: what is of another topic than the one of now is dropped,
   as soon as the coordinator knows which one that is. *)
Load(b) ==
    /\ b # coordinator /\ moves < Moves
    /\ coordinator' = b
    /\ cache' = [x \in Brokers |-> IF x = b THEN offset ELSE 0]
    /\ moves' = moves + 1
    /\ UNCHANGED <<Names, offset, asked, commits, transaction>>

(* A member asks for the offset of the topic that it reads now. The new rule compares the id in the image with the tree
   before it answers: app/broker/handlers/groups.py, _confirmed. *)
FetchOffset ==
    /\ topic.id # 0 /\ ~topic.deleting
    /\ OldOffsets \/ cache[coordinator] = 0 \/ image[coordinator].id = topic.id
    /\ LET isOfNow == OldOffsets \/ cache[coordinator] = image[coordinator].id
       IN asked' = [of |-> IF isOfNow THEN cache[coordinator] ELSE 0, reads |-> topic.id]
    /\ asked' # asked
    /\ UNCHANGED <<Names, offset, cache, commits, coordinator, moves, transaction>>

(* ---- markers *)

BeginTransaction ==
    /\ transaction.state = "empty" /\ topic.id # 0 /\ ~topic.deleting
    /\ transaction' = [id |-> topic.id, state |-> "prepared", marker |-> FALSE]
    /\ UNCHANGED <<Names, Offsets, coordinator, moves>>

WriteMarker ==
    /\ transaction.state = "prepared" /\ image[coordinator].id = transaction.id /\ topic.id = transaction.id
    /\ transaction' = [transaction EXCEPT !.state = "complete", !.marker = TRUE]
    /\ UNCHANGED <<Names, Offsets, coordinator, moves>>

(* The coordinator does not know the topic: the old rule goes by its image, the new one asks the tree. *)
PassOver ==
    /\ transaction.state = "prepared" /\ image[coordinator].id # transaction.id
    /\ OldMarkers \/ topic.id # transaction.id \/ topic.deleting
    /\ transaction' = [transaction EXCEPT !.state = "complete"]
    /\ UNCHANGED <<Names, Offsets, coordinator, moves>>

Next ==
    \/ Create \/ MarkDeleting \/ Remove
    \/ Commit \/ FetchOffset \/ BeginTransaction \/ WriteMarker \/ PassOver
    \/ \E b \in Brokers : ReadTopic(b) \/ ReadStates(b) \/ ChangeStates(b) \/ CreateStates(b) \/ Load(b)

Spec == Init /\ [][Next]_vars

(* ---- promises *)

(* The states of a topic are its own. *)
OwnStates == (topic.id # 0 /\ ~topic.deleting /\ states # NoStates) => states.id = topic.id

(* A group is never given an offset of another topic than the one that it is named with. *)
OwnOffset == asked.of # 0 => asked.of = asked.reads

(* A transaction that is complete has its marker in each topic that it wrote to and that still exists. *)
OwnMarker == (transaction.state = "complete" /\ transaction.id \notin gone) => transaction.marker
=============================================================================
