---------------------------- MODULE Replication ----------------------------
(* Replication of one partition: leader, ISR, eligible leader replicas, elections, reassignment, min.insync.replicas.

   What stands for what (core/cluster/election.py unless another file is named):
     Settle            settled, led_by, with_isr; core/cluster/controller.py
     Candidates        _elected: in sync, else complete, else the best claim of the members
     Claim             claimed, wants_claim; app/broker/lifecycle/cluster_member.py
     ElectPreferred    preferred, moved_to
     SetMinIsr         the change of min.insync.replicas in the partition's state; core/cluster/controller.py
     BeginMove ...     core/cluster/reassignment.py
     Produce, Fetch    core/replica/partition/partition.py, core/replica/partition/followers.py
     Send, Arrive      a fetch that reaches the leader late: Partition.check_leader, Partition.may_follow
     Leave             core/cluster/reassignment.py: the leader epoch rises when a replica goes
     LearnTopic        core/cluster/metadata_listener.py: a broker reads the assignment of the topic apart from the state
     ExpandIsr, ShrinkIsr  core/replica/partition/isr_manager.py: the ISR change of a leader and its compare-and-set
     Learn             core/cluster/metadata_listener.py: a broker reads the state, at any later time
     Backup, Restore   an operator; core/cluster/election.py, distrusted
     Crash, Start      kill -9 or an orderly stop, and the registration of the next life; core/cluster/broker_lifecycle.py

   A broker acts on `view`, the state as it read it last, however old that is. No lease is modelled: whatever holds here
   holds for a leader that has lost the coordination service. Only acks=all is modelled.

   The constants OldRank, OldCancel, OldMinIsr, OldRestore, OldLeave, OldFollow put rules back that lost messages. TLC must find the loss with them.  *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Brokers,        \* all brokers
    Origin,         \* the first replicas of the partition
    Target,         \* where a reassignment moves it; {} = there is none
    None,           \* no leader
    MinIsr,         \* the first min.insync.replicas
    MinIsrs,        \* values that an operator may set; {} = no change
    Changes,        \* how many changes of configuration and reassignments there are at most
    Records,        \* how many records are appended at most
    Epochs,         \* the largest leader epoch
    Crashes,        \* how many times a broker stops at most
    Starts,         \* how many times a broker starts at most
    Orderly,        \* TRUE: brokers may also stop in order
    Preferred,      \* TRUE: leaders may be moved
    OldRank,        \* TRUE: replicas that are not members may win an election by claims
    OldCancel,      \* TRUE: a reassignment is cancelled without a look at the ISR
    Restores,       \* TRUE: the coordination service may be restored from a backup once, while no broker runs
    Late,           \* how many fetches may arrive late at most
    OldLeave,       \* TRUE: the leader epoch stays when a reassignment takes away a replica that does not lead
    OldFollow,      \* TRUE: a broker fetches as long as it has the log, also where the state has no replica there
    OldRestore,     \* TRUE: the restored state is taken for the state of now
    OldMinIsr       \* TRUE: leaders and elections read min.insync.replicas from a configuration of their own

VARIABLES
    tree,       \* the state of the partition in the coordination tree
    live,       \* by broker the life (broker epoch) that is registered; 0 = none
    before,     \* by broker the life before, if it stopped in order (previous_epoch); 0 = unknown
    stopped,    \* by broker the life that stopped in order last; 0 = it was killed
    lives,      \* the last broker epoch
    config,     \* min.insync.replicas as configured: by broker what it has read
    log,        \* by broker its log: a sequence of <<leader epoch, number of the record>>
    view,       \* by broker the state that it has read
    assigned,   \* by broker whether the topic has a replica there, as it has read: then it has a log
    lead,       \* by broker what it knows as the leader: its epoch, first offset, reported ends, high watermark
    wish,       \* by broker the ISR that it has asked the tree for, until it reads a later state; {} = none
    committed,  \* every record that was ever below a high watermark, in order
    sent,       \* a fetch under way: of which replica and life, in which leader epoch, and the log that it reports
    backup,     \* the state in a backup of the coordination tree; leader epoch 0 = none was made
    count       \* how often each bounded action was taken

vars == <<tree, live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, sent, backup, count>>

NoClaim == [life |-> 0, last |-> 0, end |-> 0]
NoLead  == [epoch |-> 0, start |-> 0, ends |-> [b \in Brokers |-> -1], hw |-> 0]
(* What a broker goes by, of the state that it has read; and what it knows before it has read anything in this life.
   Equal values stand for the version that the compare-and-set asks for. *)
(* A state that was restored from a backup, and was noticed to be: which replicas were in sync since is unknown. *)
Distrusted(t) == [t EXCEPT !.leader = None, !.epoch = @ + 1, !.isr = t.replicas, !.elr = {}, !.suspects = {},
                           !.life = [b \in Brokers |-> 0]]
IsDistrusted(t) == t.replicas \subseteq (t.isr \cup t.elr \cup t.suspects) /\ \A m \in t.replicas : t.life[m] = 0
Seen(t) == [leader |-> t.leader, epoch |-> t.epoch, isr |-> t.isr, life |-> t.life, minIsr |-> t.minIsr,
            replicas |-> t.replicas]
NotSent == [from |-> None, life |-> 0, epoch |-> 0, log |-> <<>>]
Unread  == [leader |-> None, epoch |-> 0, isr |-> {}, life |-> [b \in Brokers |-> 0], minIsr |-> 0, replicas |-> {}]

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Smallest(S) == CHOOSE x \in S : \A y \in S : x <= y
IsPrefix(s, t) == Len(s) <= Len(t) /\ SubSeq(t, 1, Len(s)) = s
LastEpoch(s) == IF s = <<>> THEN 0 ELSE s[Len(s)][1]
(* Where two logs part *)
Common(s, t) == CHOOSE n \in 0 .. Min(Len(s), Len(t)) :
    /\ SubSeq(s, 1, n) = SubSeq(t, 1, n)
    /\ \A m \in 0 .. Min(Len(s), Len(t)) : m > n => SubSeq(s, 1, m) # SubSeq(t, 1, m)

Members(t) == t.isr \cup t.elr \cup t.suspects
(* The controller has a configuration of its own in the old rules: the newest. *)
MinIsrFor(b, t) == IF OldMinIsr THEN config[b] ELSE t.minIsr
EnoughOf(k, t) == Min(k, Cardinality(t.replicas))

LivesOn(t, m)  == live[m] # 0 /\ t.life[m] = live[m]
CameBack(t, m) == live[m] # 0 /\ t.life[m] # 0 /\ before[m] = t.life[m]
InDoubt(t, m)  == live[m] # 0 /\ ~LivesOn(t, m) /\ ~CameBack(t, m)

(* The state with this ISR. A replica that leaves an ISR below min.insync.replicas stays eligible, or is a suspect. *)
WithIsr(t, isr, k) ==
    LET left == IF Cardinality(isr) < EnoughOf(k, t) THEN (Members(t) \ isr) \cap t.replicas ELSE {}
        doubtful == {m \in left : m \in t.suspects \/ InDoubt(t, m)}
    IN [t EXCEPT !.isr = isr, !.elr = left \ doubtful, !.suspects = doubtful,
                 !.life = [m \in Brokers |->
                     IF m \in isr THEN (IF live[m] # 0 THEN live[m] ELSE t.life[m])
                     ELSE IF m \in left THEN (IF live[m] # 0 /\ ~InDoubt(t, m) THEN live[m] ELSE t.life[m])
                     ELSE 0],
                 !.claims = IF t.leader # None THEN [m \in Brokers |-> NoClaim] ELSE t.claims]

(* The next epoch is later than every one that a replica claims to have. *)
Later(t) == LET claimed == {t.claims[m].last : m \in Brokers}
                latest == CHOOSE e \in claimed : \A f \in claimed : e >= f
            IN IF OldRestore THEN t.epoch + 1 ELSE Max(t.epoch, latest) + 1
LedBy(t, leader, isr, k) == WithIsr([t EXCEPT !.leader = leader, !.epoch = Later(t)], isr, k)

(* The members that have told what they have *)
Told(t, S) == {m \in S : live[m] # 0 /\ t.claims[m].life = live[m]}
Better(t, m, n) == \/ t.claims[m].last > t.claims[n].last
                   \/ t.claims[m].last = t.claims[n].last /\ t.claims[m].end >= t.claims[n].end

(* Who may lead, and with which ISR, when the leader is gone. *)
Candidates(t, k) ==
    LET members == Members(t) \cap t.replicas
        alive == {m \in t.isr \cap t.replicas : LivesOn(t, m)}
        complete == {m \in (t.isr \cup t.elr) \cap t.replicas : LivesOn(t, m) \/ CameBack(t, m)}
        heard == {m \in (IF OldRank THEN t.replicas ELSE members) : live[m] # 0}
        told == Told(t, heard)
        enough == IF IsDistrusted(t) THEN Cardinality(t.replicas) ELSE Min(EnoughOf(k, t), Cardinality(members))
        isTold == heard = told /\ Cardinality(told \cap members) >= enough
    IN IF alive # {} THEN {<<m, alive>> : m \in alive}
       ELSE IF complete # {} THEN {<<m, {m}>> : m \in complete}
       ELSE IF isTold /\ told # {}
            THEN {<<m, {m}>> : m \in {n \in told : \A o \in told : Better(t, n, o)}}
       ELSE {}

IsLed(t) == t.leader # None /\ LivesOn(t, t.leader) /\ t.leader \in t.isr \cap t.replicas

(* The largest min.insync.replicas that a configuration has is what the controller reads, in the old rules. *)
ControllerMinIsr(t) == IF OldMinIsr THEN (CHOOSE k \in {config[b] : b \in Brokers} : \A b \in Brokers : k >= config[b])
                       ELSE t.minIsr

Init ==
    /\ \E first \in Origin : tree =
              [leader |-> first, epoch |-> 1, isr |-> Origin, elr |-> {}, suspects |-> {},
               life |-> [b \in Brokers |-> IF b \in Origin THEN 1 ELSE 0],
               claims |-> [b \in Brokers |-> NoClaim], minIsr |-> MinIsr,
               replicas |-> Origin, adding |-> {}, removing |-> {}]
    /\ live = [b \in Brokers |-> 1]
    /\ before = [b \in Brokers |-> 0]
    /\ stopped = [b \in Brokers |-> 0]
    /\ lives = 1
    /\ config = [b \in Brokers |-> MinIsr]
    /\ log = [b \in Brokers |-> <<>>]
    /\ view = [b \in Brokers |-> Seen(tree)]
    /\ assigned = [b \in Brokers |-> b \in Origin]
    /\ lead = [b \in Brokers |-> IF b = tree.leader THEN [NoLead EXCEPT !.epoch = 1] ELSE NoLead]
    /\ wish = [b \in Brokers |-> {}]
    /\ committed = <<>>
    /\ sent = NotSent
    /\ backup = Unread
    /\ count = [records |-> 0, crashes |-> 0, starts |-> 0, changes |-> 0, late |-> 0]

(* ---- what a leader does *)

Leads(b) == live[b] # 0 /\ assigned[b] /\ view[b].leader = b /\ view[b].life[b] = live[b]

(* The high watermark: the smallest end of the largest ISR that the tree may have; it stands still below min ISR. *)
Watermark(b, v, w, d, l) ==
    LET maximal == (v.isr \cup w) \ {b}
        ends == {d.ends[m] : m \in maximal} \cup {Len(l)}
    IN IF Cardinality(v.isr) < EnoughOf(MinIsrFor(b, v), v) THEN d.hw
       ELSE Max(d.hw, Smallest(ends))

(* The next values of lead and committed of a broker that is about to have this view, wish, knowledge and log *)
Raise(b, v, w, d, l) ==
    LET hw == IF live[b] # 0 /\ v.leader = b /\ v.life[b] = live[b] THEN Watermark(b, v, w, d, l) ELSE d.hw
    IN /\ lead' = [lead EXCEPT ![b] = [d EXCEPT !.hw = hw]]
       /\ committed' = IF hw > Len(committed) THEN committed \o SubSeq(l, Len(committed) + 1, hw) ELSE committed

Produce(b) ==
    /\ Leads(b)
    /\ count.records < Records
    /\ LET l == log[b] \o <<<<view[b].epoch, count.records + 1>>>>
       IN log' = [log EXCEPT ![b] = l] /\ Raise(b, view[b], wish[b], lead[b], l)
    /\ count' = [count EXCEPT !.records = @ + 1]
    /\ UNCHANGED <<tree, live, before, stopped, lives, config, view, assigned, wish, backup, sent>>

(* A replica that goes fetches no more: what it reports in that leader epoch would count for the empty log with which it
   may come again. *)
MayFollow(f) == assigned[f] /\ (OldFollow \/ f \in view[f].replicas)

(* A follower cuts what the leader does not have, reports what it has, and takes the rest. *)
Fetch(f, b) ==
    /\ f # b /\ Leads(b) /\ live[f] # 0
    /\ f \in view[b].replicas /\ MayFollow(f)
    /\ view[f].leader = b /\ view[f].epoch = view[b].epoch
    /\ log[f] # log[b] \/ lead[b].ends[f] # Len(log[b])
    /\ log' = [log EXCEPT ![f] = log[b]]
    /\ LET counts == f \notin view[b].isr \/ view[b].life[f] = live[f]
           d == IF counts THEN [lead[b] EXCEPT !.ends[f] = Len(log[b])] ELSE lead[b]
       IN Raise(b, view[b], wish[b], d, log[b])
    /\ UNCHANGED <<tree, live, before, stopped, lives, config, view, assigned, wish, backup, count, sent>>

(* A fetch that waits in a connection, or for a leader that stands still; its answer is lost. *)
Send(f, b) ==
    /\ f # b /\ live[f] # 0 /\ view[f].leader = b /\ MayFollow(f)
    /\ sent = NotSent /\ count.late < Late /\ log[f] # <<>>
    /\ sent' = [from |-> f, life |-> live[f], epoch |-> view[f].epoch, log |-> log[f]]
    /\ count' = [count EXCEPT !.late = @ + 1]
    /\ UNCHANGED <<tree, live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, backup>>

Arrive(b) ==
    /\ sent # NotSent /\ Leads(b) /\ b # sent.from
    /\ sent' = NotSent
    /\ LET f == sent.from
           counts == /\ sent.epoch = view[b].epoch /\ sent.life = live[f] /\ f \in view[b].replicas
                     /\ f \notin view[b].isr \/ view[b].life[f] = live[f]
                     /\ IsPrefix(sent.log, log[b])
           d == IF counts THEN [lead[b] EXCEPT !.ends[f] = Len(sent.log)] ELSE lead[b]
       IN Raise(b, view[b], wish[b], d, log[b])
    /\ UNCHANGED <<tree, live, before, stopped, lives, config, log, view, assigned, wish, backup, count>>

(* The leader stores another ISR: with a follower that has caught up, or without one that lags. The ISR that it asked for
   counts in the high watermark until the leader reads a later state, as the answer may be lost. *)
ChangeIsr(b, isr) ==
    /\ Leads(b) /\ wish[b] = {} /\ view[b] = Seen(tree)
    /\ wish' = [wish EXCEPT ![b] = isr]
    /\ tree' = WithIsr(tree, isr, MinIsrFor(b, tree))
    /\ UNCHANGED <<live, before, stopped, lives, config, log, view, assigned, lead, committed, backup, count, sent>>

ExpandIsr(b, f) ==
    /\ f \in view[b].replicas \ view[b].isr /\ live[f] # 0
    /\ lead[b].ends[f] >= Max(lead[b].hw, lead[b].start)
    /\ ChangeIsr(b, view[b].isr \cup {f})

ShrinkIsr(b, f) ==
    /\ f # b /\ f \in view[b].isr
    /\ lead[b].ends[f] < Len(log[b])
    /\ ChangeIsr(b, view[b].isr \ {f})

(* ---- what every broker does *)

Learn(b) ==
    /\ live[b] # 0 /\ view[b] # Seen(tree)
    /\ view' = [view EXCEPT ![b] = Seen(tree)]
    /\ wish' = [wish EXCEPT ![b] = {}]
    /\ assigned' = IF Late = 0 THEN [assigned EXCEPT ![b] = b \in tree.replicas] ELSE assigned
    /\ IF b \notin tree.replicas
       THEN /\ lead' = [lead EXCEPT ![b] = NoLead]  \* its replica has moved away
            /\ log' = IF Late = 0 THEN [log EXCEPT ![b] = <<>>] ELSE log
            /\ UNCHANGED committed
       ELSE LET isLeader == tree.leader = b /\ tree.life[b] = live[b]
                isNew == isLeader /\ lead[b].epoch # tree.epoch
                d == IF isNew THEN [NoLead EXCEPT !.epoch = tree.epoch, !.start = Len(log[b])]
                     ELSE IF isLeader
                          THEN [lead[b] EXCEPT !.ends = [m \in Brokers |->
                                   IF m \notin tree.replicas \/ (m \in tree.isr /\ m \notin view[b].isr /\ tree.life[m] # live[m])
                                   THEN -1 ELSE @[m]]]
                     ELSE NoLead
            IN UNCHANGED log /\ Raise(b, Seen(tree), {}, d, log[b])
    /\ UNCHANGED <<tree, live, before, stopped, lives, config, backup, count, sent>>

(* Where fetches may be late, a broker reads the assignment of the topic apart from the state. The log of a replica that
   has gone is deleted then, unless it is back. *)
LearnTopic(b) ==
    /\ Late > 0 /\ live[b] # 0 /\ assigned[b] # (b \in tree.replicas)
    /\ assigned' = [assigned EXCEPT ![b] = ~@]
    /\ log' = [log EXCEPT ![b] = <<>>]
    /\ lead' = [lead EXCEPT ![b] = NoLead]
    /\ UNCHANGED <<tree, live, before, stopped, lives, config, view, wish, committed, backup, count, sent>>

(* What the replica has, where nobody leads. It has read that, so it fetches from no leader of before. *)
Claim(b) ==
    /\ live[b] # 0 /\ view[b] = Seen(tree) /\ tree.leader = None /\ b \in tree.replicas
    /\ tree.claims[b].life # live[b]
    /\ tree' = [tree EXCEPT !.claims[b] = [life |-> live[b], last |-> LastEpoch(log[b]), end |-> Len(log[b])]]
    /\ UNCHANGED <<live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, backup, count, sent>>

Crash(b, isOrderly) ==
    /\ live[b] # 0 /\ count.crashes < Crashes
    /\ live' = [live EXCEPT ![b] = 0]
    /\ stopped' = [stopped EXCEPT ![b] = IF isOrderly THEN live[b] ELSE 0]
    /\ lead' = [lead EXCEPT ![b] = NoLead]
    /\ wish' = [wish EXCEPT ![b] = {}]
    /\ view' = [view EXCEPT ![b] = Unread]
    /\ before' = [before EXCEPT ![b] = 0]
    /\ count' = [count EXCEPT !.crashes = @ + 1]
    /\ UNCHANGED <<tree, lives, config, log, assigned, committed, backup, sent>>

Start(b) ==
    /\ live[b] = 0 /\ count.starts < Starts
    /\ lives' = lives + 1
    /\ live' = [live EXCEPT ![b] = lives + 1]
    /\ before' = [before EXCEPT ![b] = stopped[b]]
    /\ stopped' = [stopped EXCEPT ![b] = 0]
    /\ lead' = [x \in Brokers |-> [lead[x] EXCEPT !.ends[b] = -1]]  \* what it reports counts in its new life
    /\ count' = [count EXCEPT !.starts = @ + 1]
    /\ UNCHANGED <<tree, config, log, view, assigned, wish, committed, backup, sent>>

(* ---- the controller *)

Settle ==
    LET t == tree
        k == ControllerMinIsr(t)
        stay == {m \in t.isr \cap t.replicas : LivesOn(t, m)}
    IN /\ IF IsLed(t)
          THEN /\ WithIsr(t, stay, k) # t
               /\ tree' = WithIsr(t, stay, k)
          ELSE IF Candidates(t, k) # {}
               THEN /\ t.epoch < Epochs
                    /\ \E c \in Candidates(t, k) : tree' = LedBy(t, c[1], c[2], k)
               ELSE /\ t.leader # None /\ t.epoch < Epochs
                    /\ tree' = [t EXCEPT !.leader = None, !.epoch = @ + 1]
       /\ UNCHANGED <<live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, backup, count, sent>>

ElectPreferred ==
    /\ Preferred /\ IsLed(tree) /\ tree.epoch < Epochs
    /\ \E m \in (tree.isr \cap tree.replicas) \ {tree.leader} :
        /\ LivesOn(tree, m)
        /\ tree' = LedBy(tree, m, {n \in tree.isr : LivesOn(tree, n)}, ControllerMinIsr(tree))
    /\ UNCHANGED <<live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, backup, count, sent>>

(* ---- what operators do *)

Backup ==
    /\ Restores /\ backup = Unread
    /\ backup' = tree
    /\ UNCHANGED <<tree, live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, count, sent>>

(* Brokers do not run meanwhile, and notice at their start that the service went back (core/cluster/broker_lifecycle.py,
   app/broker/lifecycle/cluster_member.py). *)
Restore ==
    /\ backup.epoch > 0 /\ backup.replicas # {} /\ tree # backup /\ \A b \in Brokers : live[b] = 0
    /\ tree' = IF OldRestore THEN backup ELSE Distrusted(backup)
    /\ backup' = [Unread EXCEPT !.epoch = 1]
    /\ UNCHANGED <<live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, count, sent>>

(* The old rule: each broker reads the new configuration at some time. The new rule: one compare-and-set of the state,
   which forgets the eligible replicas that the old value had left, before any leader can commit by the new one. *)
SetMinIsr ==
    /\ count.changes < Changes
    /\ IF OldMinIsr
       THEN \E b \in Brokers, k \in MinIsrs : config[b] # k /\ config' = [config EXCEPT ![b] = k] /\ UNCHANGED tree
       ELSE \E k \in MinIsrs \ {tree.minIsr} :
                /\ tree' = IF k < tree.minIsr
                           THEN [tree EXCEPT !.minIsr = k, !.elr = {}, !.suspects = {},
                                             !.life = [m \in Brokers |-> IF m \in tree.isr THEN @[m] ELSE 0]]
                           ELSE [tree EXCEPT !.minIsr = k]
                /\ UNCHANGED config
    /\ count' = [count EXCEPT !.changes = @ + 1]
    /\ UNCHANGED <<live, before, stopped, lives, log, view, assigned, lead, wish, committed, backup, sent>>

BeginMove ==
    /\ Target # {} /\ count.changes < Changes /\ tree.adding = {} /\ tree.removing = {} /\ tree.replicas # Target
    /\ tree' = [tree EXCEPT !.replicas = @ \cup Target, !.adding = Target \ tree.replicas,
                            !.removing = tree.replicas \ Target]
    /\ count' = [count EXCEPT !.changes = @ + 1]
    /\ UNCHANGED <<live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, backup, sent>>

(* Replicas may go only while enough of the ISR stays, and one of those that stay lives in the ISR. *)
MayLeave(t, gone) ==
    LET staying == t.isr \ gone
    IN /\ \E m \in staying : LivesOn(t, m)
       /\ Cardinality(staying) >= Min(t.minIsr, Cardinality(t.replicas \ gone))

Leave(t, gone) ==
    [WithIsr([t EXCEPT !.replicas = @ \ gone, !.adding = {}, !.removing = {}], t.isr \ gone, ControllerMinIsr(t))
        EXCEPT !.leader = IF t.leader \in gone THEN None ELSE @,
               !.epoch = IF t.leader \in gone \/ (~OldLeave /\ gone # {}) THEN @ + 1 ELSE @]

FinishMove ==
    /\ (tree.adding # {} \/ tree.removing # {}) /\ (tree.replicas \ tree.removing) \subseteq tree.isr
    /\ tree.epoch < Epochs
    /\ \A m \in tree.replicas \ tree.removing : LivesOn(tree, m)
    /\ tree' = Leave(tree, tree.removing)
    /\ UNCHANGED <<live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, backup, count, sent>>

CancelMove ==
    /\ count.changes < Changes /\ tree.epoch < Epochs
    /\ tree.adding # {} \/ tree.removing # {}
    /\ OldCancel \/ MayLeave(tree, tree.adding)
    /\ tree' = IF tree.isr \ tree.adding = {}  \* reached by the old rule alone: the ISR of before stays in the state
               THEN [tree EXCEPT !.replicas = @ \ tree.adding, !.adding = {}, !.removing = {}, !.leader = None,
                                 !.epoch = @ + 1, !.isr = tree.replicas \ tree.adding, !.elr = {}, !.suspects = {}]
               ELSE Leave(tree, tree.adding)
    /\ count' = [count EXCEPT !.changes = @ + 1]
    /\ UNCHANGED <<live, before, stopped, lives, config, log, view, assigned, lead, wish, committed, backup, sent>>

Next ==
    \/ Settle
    \/ ElectPreferred
    \/ Backup \/ Restore \/ SetMinIsr \/ BeginMove \/ FinishMove \/ CancelMove
    \/ \E b \in Brokers :
        \/ Produce(b) \/ Learn(b) \/ LearnTopic(b) \/ Claim(b) \/ Start(b) \/ Arrive(b)
        \/ \E o \in (IF Orderly THEN BOOLEAN ELSE {FALSE}) : Crash(b, o)
        \/ \E f \in Brokers : Fetch(f, b) \/ Send(f, b) \/ ExpandIsr(b, f) \/ ShrinkIsr(b, f)

Spec == Init /\ [][Next]_vars

(* ---- promises *)

(* The broker that the state names as the leader has every committed record. *)
LeaderCompleteness == tree.leader # None => IsPrefix(committed, log[tree.leader])

(* All high watermarks are of one log. *)
Agreement == \A b \in Brokers : Leads(b) => LET n == Min(lead[b].hw, Len(committed))
                                            IN SubSeq(log[b], 1, n) = SubSeq(committed, 1, n)

(* A leader epoch has one appender: records of one epoch at one offset are one record. *)
OneAppender == \A a, b \in Brokers : \A n \in 1 .. Min(Len(log[a]), Len(log[b])) :
    log[a][n][1] = log[b][n][1] => log[a][n] = log[b][n]

(* Some replica has every committed record: no promise was lost with a log that was removed. *)
Kept == committed = <<>> \/ \E b \in tree.replicas : IsPrefix(committed, log[b])

Symmetry == Permutations(Brokers)
=============================================================================
