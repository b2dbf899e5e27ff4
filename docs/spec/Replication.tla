---------------------------- MODULE Replication ----------------------------
(* The protocol of docs/protocol.md 1, 9 and 13 as eventlog/replication and eventlog/control implement it.

   A log is a sequence of entries (id, epoch); the first entry of an epoch is its marker. Backups compare by id alone: a row applies
   where the own log ends with the id that the row names. Rows are never consumed: `sent` has everything that the primary of an epoch
   ever sent, so a row may come late, twice, in any order, or not at all; a message that is lost is a step that is not taken. Cuts are
   messages of their own, since a late one is dangerous. An acknowledgement, once given, is known for the rest of its epoch.
   Proposals lie with the metadata store until somebody's commit makes their revision old. Clocks are free: the next id is any above
   the node's clock and within its lease.

   Each R_... is a rule; FALSE leaves it out, and check.py demands that something breaks then.                                  *)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS Nodes, Segments,
          EpochMax, IdMax, EventsMax, RestartsMax, ChangesMax, PromisesMax,     \* bounds of what is explored
          MinInSync, FirstSize,     \* smallest in-sync set; its size at the start
          Ceilings, FirstCeiling    \* ceilings of id leases

CONSTANTS R_Epoch,        \* a row, and the acknowledgement of it, count only under the highest epoch known
          R_Match,        \* values are taken only where the log ends with the id before them
          R_CutExact,     \* a cut is made only in a log that still ends as it did, and is not known to match
          R_CutHistory,   \* a cut keeps what the histories of epochs have in common; FALSE: what the backup knows to be committed
          R_AckDisk,      \* only what is on disk is acknowledged
          R_AdoptAck,     \* a tail is adopted when all awaited replicas hold the marker; FALSE: when it is on the own disk
          R_AdoptFirst,   \* promises only for adopted segments
          R_Session,      \* being primary ends with the process
          R_Union,        \* "union": present and proposed set are awaited; "present"; "proposed"
          R_OneProposal,  \* one proposal in flight for each segment
          R_Unknown,      \* a proposal counts until a newer record is seen
          R_Revision,     \* a proposal is committed only on the revision that it was made on
          R_EpochStart,   \* joining needs the marker of the epoch
          R_KeepMin,      \* the in-sync set never gets smaller than MinInSync
          R_WatermarkMatch,   \* a backup takes a watermark only where its log is known to match
          R_Lease,        \* ids and promises stay within the lease
          R_Floor,        \* a new primary's ids lie above the lease of the one before
          R_FloorChain,   \* and above the leases of all earlier ones
          R_RaiseReads,   \* raising a ceiling notices what was taken away meanwhile
          R_RestartCeiling,   \* a restarted node's ids lie above its own lease
          R_InFlight,     \* a promise stays below what is in flight
          R_Cover         \* a node serves up to a promise when it has the event that the promise names

VARIABLES rec,      \* segment -> record in the metadata store
          asked,    \* segment -> proposals on their way to it
          ceiling, clock, session,          \* node ->
          log, disk, epoch, matched, mark,  \* node -> segment ->; disk: length on disk; mark: watermark, an id
          lead, start, seen, wish,          \* node -> segment -> epoch led, id of its marker, record as known, own proposal
          sent, told, held, cuts,           \* messages: rows and watermarks by epoch, acknowledgements, cuts
          promised, committed, issued, used \* what was promised by epoch; ghosts; how much of the bounds is used up

store == <<rec, asked>>
clocks == <<ceiling, clock, session, issued>>
logs == <<log, disk, epoch, matched, mark>>
terms == <<lead, start, seen, wish>>
net == <<sent, told, held, cuts>>
vars == <<store, clocks, logs, terms, net, promised, committed, used>>

Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b
Least(S) == CHOOSE x \in S : \A y \in S : x <= y
Greatest(S) == CHOOSE x \in S : \A y \in S : x >= y
Epochs == 1..EpochMax
NoWish == [revision |-> 0, set |-> {}]

IdAt(l, i) == IF i = 0 THEN 0 ELSE l[i].id
End(l) == IdAt(l, Len(l))
EndEpoch(l) == IF l = <<>> THEN 0 ELSE l[Len(l)].epoch
UpTo(l, id) == SelectSeq(l, LAMBDA x : x.id <= id)
Prefix(a, b) == Len(a) <= Len(b) /\ SubSeq(b, 1, Len(a)) = a
OnDisk(n, s) == SubSeq(log[n][s], 1, disk[n][s])
Lease(n) == IF R_Lease THEN ceiling[n] ELSE IdMax

\* Everybody of the first in-sync set holds the marker of epoch 1, and its primary has adopted it.
Start(first) ==
  LET set(s) == CHOOSE x \in SUBSET Nodes : Cardinality(x) = FirstSize /\ first[s] \in x
      one == <<[id |-> 1, epoch |-> 1]>>
      record(s) == [revision |-> 1, epoch |-> 1, primary |-> first[s], session |-> 0, set |-> set(s), floor |-> 0]
      On(s, n, then, else) == IF n \in set(s) THEN then ELSE else
  IN
  /\ rec = [s \in Segments |-> record(s)]
  /\ asked = [s \in Segments |-> {}]
  /\ ceiling = [n \in Nodes |-> FirstCeiling]
  /\ clock = [n \in Nodes |-> 1]
  /\ session = [n \in Nodes |-> 0]
  /\ issued = [n \in Nodes |-> 1]
  /\ log = [n \in Nodes |-> [s \in Segments |-> On(s, n, one, <<>>)]]
  /\ disk = [n \in Nodes |-> [s \in Segments |-> On(s, n, 1, 0)]]
  /\ epoch = [n \in Nodes |-> [s \in Segments |-> 1]]
  /\ matched = [n \in Nodes |-> [s \in Segments |-> n \in set(s) /\ n # first[s]]]
  /\ mark = [n \in Nodes |-> [s \in Segments |-> IF n = first[s] THEN 1 ELSE 0]]
  /\ lead = [n \in Nodes |-> [s \in Segments |-> IF n = first[s] THEN 1 ELSE 0]]
  /\ start = [n \in Nodes |-> [s \in Segments |-> IF n = first[s] THEN 1 ELSE 0]]
  /\ seen = [n \in Nodes |-> [s \in Segments |-> record(s)]]
  /\ wish = [n \in Nodes |-> [s \in Segments |-> NoWish]]
  /\ sent = [s \in Segments |-> [e \in Epochs |-> IF e = 1 THEN one ELSE <<>>]]
  /\ told = [s \in Segments |-> [e \in Epochs |-> IF e = 1 THEN 1 ELSE 0]]
  /\ held = [s \in Segments |-> [e \in Epochs |-> [n \in Nodes |-> IF e = 1 THEN On(s, n, 1, 0) ELSE 0]]]
  /\ cuts = [s \in Segments |-> {}]
  /\ promised = [s \in Segments |-> [e \in Epochs |-> [upto |-> 0, last |-> 0]]]
  /\ committed = [s \in Segments |-> one]
  /\ used = [events |-> 0, restarts |-> 0, changes |-> 0, promises |-> 0]

Init == \E first \in [Segments -> Nodes] : Start(first)

\* ---------------------------------------------------------------- the primary

Awaited(p, s) == CASE R_Union = "union"    -> seen[p][s].set \cup wish[p][s].set
                   [] R_Union = "present"  -> seen[p][s].set
                   [] R_Union = "proposed" -> IF wish[p][s] # NoWish THEN wish[p][s].set ELSE seen[p][s].set

Adopted(p, s) == /\ lead[p][s] > 0 /\ start[p][s] > 0
                 /\ IF R_AdoptAck THEN mark[p][s] >= start[p][s] ELSE held[s][lead[p][s]][p] >= start[p][s]

Put(p, s, id) ==            \* append an entry of the present epoch and send it
  LET entry == [id |-> id, epoch |-> lead[p][s]] IN
  /\ Assert(id > issued[p], "an id was issued twice")
  /\ log' = [log EXCEPT ![p][s] = Append(@, entry)]
  /\ sent' = [sent EXCEPT ![s][lead[p][s]] = Append(log[p][s], entry)]
  /\ clock' = [clock EXCEPT ![p] = id]
  /\ issued' = [issued EXCEPT ![p] = id]

Mark(p, s) ==
  /\ lead[p][s] > 0 /\ start[p][s] = 0
  /\ \E id \in (clock[p] + 1)..Lease(p) : Put(p, s, id) /\ start' = [start EXCEPT ![p][s] = id]
  /\ UNCHANGED <<store, ceiling, session, disk, epoch, matched, mark, lead, seen, wish, told, held, cuts, promised, committed, used>>

Write(p, s) ==
  /\ Adopted(p, s) /\ used.events < EventsMax
  /\ End(log[p][s]) = Max(mark[p][s], start[p][s])            \* one group in flight
  /\ R_KeepMin => Cardinality(seen[p][s].set) >= MinInSync
  /\ \E id \in (clock[p] + 1)..Lease(p) : Put(p, s, id)
  /\ used' = [used EXCEPT !.events = @ + 1]
  /\ UNCHANGED <<store, ceiling, session, disk, epoch, matched, mark, terms, told, held, cuts, promised, committed>>

Advance(p, s) ==
  LET e == lead[p][s]
      id == Least({held[s][e][n] : n \in Awaited(p, s) \cup {p}})
      prefix == UpTo(log[p][s], id)
  IN
  /\ e > 0 /\ id > mark[p][s] /\ (R_KeepMin => Cardinality(seen[p][s].set) >= MinInSync)
  /\ Assert(Prefix(prefix, committed[s]) \/ Prefix(committed[s], prefix), "committed events were replaced")
  /\ mark' = [mark EXCEPT ![p][s] = id]
  /\ told' = [told EXCEPT ![s][e] = id]
  /\ committed' = [committed EXCEPT ![s] = IF Len(prefix) > Len(@) THEN prefix ELSE @]
  /\ UNCHANGED <<store, clocks, log, disk, epoch, matched, terms, sent, held, cuts, promised, used>>

\* What a primary with the log `mine` makes of the answer "my log ends with this id, of that epoch".
Common(mine, theirs) == Greatest({0} \cup {x \in {mine[i].epoch : i \in 1..Len(mine)} : x <= EndEpoch(theirs)})
Point(mine, theirs) == LET common == Common(mine, theirs) IN End(SelectSeq(mine, LAMBDA x : x.epoch <= common))
Agree(mine, theirs) == Common(mine, theirs) = EndEpoch(theirs) /\ End(theirs) <= Point(mine, theirs)

SendCut(p, q, s) ==
  LET e == lead[p][s]
      end == End(log[q][s])
      point == Point(log[p][s], log[q][s])
      upto == IF R_CutHistory THEN Min(end - 1, point) ELSE Min(end, mark[q][s])
      cut == [epoch |-> e, to |-> q, end |-> end, upto |-> upto]
  IN
  /\ p # q /\ e > 0 /\ start[p][s] > 0 /\ epoch[q][s] = e /\ ~matched[q][s] /\ end > 0
  /\ IF R_CutHistory THEN ~Agree(log[p][s], log[q][s]) ELSE end > upto
  /\ cut \notin cuts[s]
  /\ cuts' = [cuts EXCEPT ![s] = @ \cup {cut}]
  /\ UNCHANGED <<store, clocks, logs, terms, sent, told, held, promised, committed, used>>

\* ---------------------------------------------------------------- the backup

Fenced(q, s, e) ==          \* what a higher epoch ends
  /\ epoch' = [epoch EXCEPT ![q][s] = Max(@, e)]
  /\ lead' = [lead EXCEPT ![q][s] = IF e > epoch[q][s] THEN 0 ELSE @]
  /\ start' = [start EXCEPT ![q][s] = IF e > epoch[q][s] THEN 0 ELSE @]
  /\ wish' = [wish EXCEPT ![q][s] = IF e > epoch[q][s] THEN NoWish ELSE @]

Receive(q, s, e) ==
  LET row == sent[s][e]
      own == log[q][s]
      \* what is sent after the answer "my log ends with this id" begins there, if the histories of epochs say that it is in both logs
      asked_for == {Len(UpTo(row, End(own)))}
      places == {i \in 0..Len(row) : IdAt(row, i) = End(own)} \cup (IF Agree(row, own) THEN asked_for ELSE {})
      anywhere == {i \in 0..Len(row) : IdAt(row, i) >= End(own)}
      found == IF R_Match THEN places ELSE anywhere
      i == IF R_Match THEN Least(found) ELSE Greatest({Least(found)} \cup {x \in found : x < Len(row)})
      new == IF i < Len(row) THEN Append(own, row[i + 1]) ELSE own
      matches == found # {}
  IN
  /\ row # <<>> /\ lead[q][s] # e /\ row[Len(row)].epoch = e
  /\ R_Epoch => e >= epoch[q][s]
  /\ e > epoch[q][s] \/ (matches /\ (new # own \/ ~matched[q][s]))
  /\ Fenced(q, s, e)
  /\ log' = [log EXCEPT ![q][s] = IF matches THEN new ELSE @]
  /\ matched' = [matched EXCEPT ![q][s] = matches \/ (@ /\ e <= epoch[q][s])]
  /\ clock' = [clock EXCEPT ![q] = IF matches THEN Max(@, End(new)) ELSE @]
  /\ UNCHANGED <<store, ceiling, session, issued, disk, mark, seen, net, promised, committed, used>>

Sync(n, s) ==
  /\ disk[n][s] < Len(log[n][s])
  /\ disk' = [disk EXCEPT ![n][s] = Len(log[n][s])]
  /\ held' = IF lead[n][s] > 0 /\ start[n][s] > 0
             THEN [held EXCEPT ![s][lead[n][s]][n] = End(log[n][s])] ELSE held
  /\ UNCHANGED <<store, clocks, log, epoch, matched, mark, terms, sent, told, cuts, promised, committed, used>>

Hold(q, s, e) ==            \* acknowledge under epoch e
  LET end == IF R_AckDisk THEN IdAt(log[q][s], disk[q][s]) ELSE End(log[q][s]) IN
  /\ matched[q][s] /\ lead[q][s] = 0 /\ e <= epoch[q][s]
  /\ R_Epoch => e = epoch[q][s]
  /\ end \in {IdAt(sent[s][e], i) : i \in 0..Len(sent[s][e])}
  /\ end > held[s][e][q]
  /\ held' = [held EXCEPT ![s][e][q] = end]
  /\ UNCHANGED <<store, clocks, logs, terms, sent, told, cuts, promised, committed, used>>

HearWatermark(q, s, e) ==
  LET end == IdAt(log[q][s], disk[q][s])
      id == Greatest({0} \cup {x \in {IdAt(log[q][s], i) : i \in 1..disk[q][s]} : x <= told[s][e]})
  IN
  /\ e = epoch[q][s] /\ lead[q][s] = 0 /\ (R_WatermarkMatch => matched[q][s])
  /\ id > mark[q][s]
  /\ mark' = [mark EXCEPT ![q][s] = id]
  /\ UNCHANGED <<store, clocks, log, disk, epoch, matched, terms, net, promised, committed, used>>

TakeCut(q, s) ==
  \E cut \in cuts[s] :
    LET new == UpTo(log[q][s], cut.upto) IN
    /\ cut.to = q /\ cut.epoch = epoch[q][s] /\ lead[q][s] = 0
    /\ R_CutExact => End(log[q][s]) = cut.end /\ ~matched[q][s]
    /\ new # log[q][s] /\ cut.upto >= mark[q][s]
    /\ log' = [log EXCEPT ![q][s] = new]
    /\ disk' = [disk EXCEPT ![q][s] = Min(@, Len(new))]
    /\ matched' = [matched EXCEPT ![q][s] = ~R_CutExact /\ @]
    /\ UNCHANGED <<store, clocks, epoch, mark, terms, net, promised, committed, used>>

\* ---------------------------------------------------------------- records

Propose(p, s) ==
  LET e == lead[p][s]  now == seen[p][s] IN
  /\ e > 0 /\ start[p][s] > 0 /\ used.changes < ChangesMax
  /\ R_OneProposal => wish[p][s] = NoWish
  /\ \E q \in Nodes \ {p} :
       LET set == IF q \in now.set THEN now.set \ {q} ELSE now.set \cup {q}
           new == [revision |-> now.revision, set |-> set]
       IN
       /\ IF q \in now.set THEN R_KeepMin => Cardinality(set) >= MinInSync
          ELSE /\ held[s][e][q] > 0 /\ held[s][e][q] >= mark[p][s]
               /\ R_EpochStart => held[s][e][q] >= start[p][s]
       /\ wish' = [wish EXCEPT ![p][s] = new]
       /\ asked' = [asked EXCEPT ![s] = @ \cup {[epoch |-> e, revision |-> now.revision, set |-> set]}]
  /\ used' = [used EXCEPT !.changes = @ + 1]
  /\ UNCHANGED <<rec, clocks, logs, lead, start, seen, net, promised, committed>>

Commit(s) ==
  \E x \in asked[s] :
    /\ x.epoch = rec[s].epoch /\ (R_Revision => x.revision = rec[s].revision)
    /\ rec' = [rec EXCEPT ![s].set = x.set, ![s].revision = @ + 1]
    /\ asked' = [asked EXCEPT ![s] = IF R_Revision THEN @ \ {x} ELSE @]     \* a commit may be tried again
    /\ UNCHANGED <<clocks, logs, terms, net, promised, committed, used>>

See(p, s) ==                \* the primary sees a newer record of its own term
  /\ lead[p][s] > 0 /\ rec[s].epoch = lead[p][s] /\ rec[s].revision > seen[p][s].revision
  /\ seen' = [seen EXCEPT ![p][s] = rec[s]]
  /\ wish' = [wish EXCEPT ![p][s] = NoWish]
  /\ UNCHANGED <<store, clocks, logs, lead, start, net, promised, committed, used>>

Forget(p, s) ==             \* a time-out taken for a failure
  /\ ~R_Unknown /\ wish[p][s] # NoWish
  /\ wish' = [wish EXCEPT ![p][s] = NoWish]
  /\ UNCHANGED <<store, clocks, logs, lead, start, seen, net, promised, committed, used>>

Appoint(s, r) ==            \* failover, hand-over, and a restarted primary's next term
  LET old == rec[s].primary
      floor == IF ~R_Floor THEN 0 ELSE IF R_FloorChain THEN Max(rec[s].floor, ceiling[old]) ELSE ceiling[old]
  IN
  /\ rec[s].epoch < EpochMax /\ r \in rec[s].set
  /\ r # old \/ session[r] # rec[s].session
  /\ \E set \in {rec[s].set, rec[s].set \ ({old} \ {r})} :
       /\ set = rec[s].set \/ ~R_KeepMin \/ Cardinality(set) >= MinInSync
       /\ rec' = [rec EXCEPT ![s] = [revision |-> @.revision + 1, epoch |-> @.epoch + 1, primary |-> r,
                                      session |-> session[r], set |-> set, floor |-> floor]]
  /\ UNCHANGED <<asked, clocks, logs, terms, net, promised, committed, used>>

TakeOver(r, s) ==
  LET e == rec[s].epoch
      begun == {log[r][s][i].id : i \in {i \in 1..Len(log[r][s]) : log[r][s][i].epoch = e}}
  IN
  /\ rec[s].primary = r /\ lead[r][s] # e
  /\ R_Session => rec[s].session = session[r] /\ e > epoch[r][s]
  /\ lead' = [lead EXCEPT ![r][s] = e]
  /\ epoch' = [epoch EXCEPT ![r][s] = e]
  /\ start' = [start EXCEPT ![r][s] = IF begun = {} THEN 0 ELSE Least(begun)]
  /\ matched' = [matched EXCEPT ![r][s] = FALSE]
  /\ seen' = [seen EXCEPT ![r][s] = rec[s]]
  /\ wish' = [wish EXCEPT ![r][s] = NoWish]
  /\ clock' = [clock EXCEPT ![r] = Max(Max(@, End(log[r][s])), rec[s].floor)]
  /\ UNCHANGED <<store, ceiling, session, issued, log, disk, mark, net, promised, committed, used>>

StepDown(n, s) ==           \* a record shows a higher epoch
  /\ rec[s].epoch > epoch[n][s] /\ rec[s].primary # n
  /\ Fenced(n, s, rec[s].epoch)
  /\ matched' = [matched EXCEPT ![n][s] = FALSE]
  /\ UNCHANGED <<store, clocks, log, disk, mark, seen, net, promised, committed, used>>

\* ---------------------------------------------------------------- leases, promises, restarts

Gone(n, s) == R_RaiseReads /\ lead[n][s] > 0 /\ rec[s].epoch > lead[n][s]

Raise(n) ==
  /\ \E c \in Ceilings : c > ceiling[n] /\ ceiling' = [ceiling EXCEPT ![n] = c]
  /\ lead' = [lead EXCEPT ![n] = [s \in Segments |-> IF Gone(n, s) THEN 0 ELSE @[s]]]
  /\ start' = [start EXCEPT ![n] = [s \in Segments |-> IF Gone(n, s) THEN 0 ELSE @[s]]]
  /\ wish' = [wish EXCEPT ![n] = [s \in Segments |-> IF Gone(n, s) THEN NoWish ELSE @[s]]]
  /\ UNCHANGED <<store, clock, session, issued, logs, seen, net, promised, committed, used>>

Promise(p, s) ==
  LET e == lead[p][s] IN
  /\ e > 0 /\ used.promises < PromisesMax
  /\ R_AdoptFirst => Adopted(p, s)
  /\ \E w \in (promised[s][e].upto + 1)..Lease(p) :
       /\ R_InFlight => \A i \in 1..Len(log[p][s]) : log[p][s][i].id > mark[p][s] => log[p][s][i].id > w
       /\ promised' = [promised EXCEPT ![s][e] = [upto |-> w, last |-> mark[p][s]]]
       /\ clock' = [clock EXCEPT ![p] = Max(@, w)]
  /\ used' = [used EXCEPT !.promises = @ + 1]
  /\ UNCHANGED <<store, ceiling, session, issued, logs, terms, net, committed>>

Restart(n) ==               \* what was not synced may be lost; everything in memory is
  /\ used.restarts < RestartsMax
  /\ used' = [used EXCEPT !.restarts = @ + 1]
  /\ \E keeps \in BOOLEAN :
       LET left(s) == IF keeps THEN log[n][s] ELSE OnDisk(n, s) IN
       /\ log' = [log EXCEPT ![n] = [s \in Segments |-> left(s)]]
       /\ disk' = [disk EXCEPT ![n] = [s \in Segments |-> Len(left(s))]]
       /\ clock' = [clock EXCEPT ![n] = IF R_RestartCeiling THEN ceiling[n] ELSE Greatest({End(left(s)) : s \in Segments})]
  /\ session' = [session EXCEPT ![n] = @ + 1]
  /\ epoch' = [epoch EXCEPT ![n] = [s \in Segments |-> Max(rec[s].epoch, EndEpoch(log[n][s]))]]
  /\ matched' = [matched EXCEPT ![n] = [s \in Segments |-> FALSE]]
  /\ lead' = [lead EXCEPT ![n] = [s \in Segments |-> 0]]
  /\ start' = [start EXCEPT ![n] = [s \in Segments |-> 0]]
  /\ wish' = [wish EXCEPT ![n] = [s \in Segments |-> NoWish]]
  /\ UNCHANGED <<store, ceiling, issued, mark, seen, net, promised, committed>>

Next ==
  \/ \E n \in Nodes : Raise(n) \/ Restart(n)
  \/ \E s \in Segments :
       \/ Commit(s)
       \/ \E n \in Nodes : \/ Mark(n, s) \/ Write(n, s) \/ Advance(n, s) \/ Sync(n, s) \/ TakeCut(n, s) \/ Propose(n, s)
                           \/ See(n, s) \/ Forget(n, s) \/ Appoint(s, n) \/ TakeOver(n, s) \/ StepDown(n, s) \/ Promise(n, s)
                           \/ \E e \in Epochs : Receive(n, s, e) \/ Hold(n, s, e) \/ HearWatermark(n, s, e)
                           \/ \E q \in Nodes : SendCut(n, q, s)

Spec == Init /\ [][Next]_vars

\* ---------------------------------------------------------------- what must hold

LogMatching ==              \* an id stands for everything below it: what every comparison rests on
  \A a, b \in Nodes, s \in Segments : \A i \in 1..Len(log[a][s]), j \in 1..Len(log[b][s]) :
     log[a][s][i].id = log[b][s][j].id => SubSeq(log[a][s], 1, i) = SubSeq(log[b][s], 1, j)
Rising ==                   \* ids of a log strictly increase
  \A n \in Nodes, s \in Segments : \A i \in 2..Len(log[n][s]) : log[n][s][i - 1].id < log[n][s][i].id
Visible ==                  \* what a node may show is committed
  \A n \in Nodes, s \in Segments : Prefix(UpTo(log[n][s], mark[n][s]), committed[s]) /\ mark[n][s] <= End(log[n][s])
Survives ==                 \* every member of the recorded set has every committed event on disk
  \A s \in Segments : \A n \in rec[s].set : Prefix(committed[s], OnDisk(n, s))
Copies ==                   \* and there are enough of them
  \A s \in Segments : Cardinality({n \in Nodes : Prefix(committed[s], OnDisk(n, s))}) >= MinInSync
OnePrimary ==
  \A s \in Segments : \A a, b \in Nodes : lead[a][s] > 0 /\ lead[a][s] = lead[b][s] => a = b
Promises ==                 \* nothing at or below a promise is committed after it
  \A s \in Segments, e \in Epochs : \A i \in 1..Len(committed[s]) :
     committed[s][i].id > promised[s][e].last => committed[s][i].id > promised[s][e].upto
Served ==                   \* who serves up to a promise shows every committed event up to it
  \A n \in Nodes, s \in Segments, e \in Epochs :
     (R_Cover => mark[n][s] >= promised[s][e].last) =>
       \A i \in 1..Len(committed[s]) : committed[s][i].id <= promised[s][e].upto => committed[s][i].id <= mark[n][s]
Symmetry == Permutations(Nodes)

\* ---------------------------------------------------------------- what makes the search of three nodes end

\* Where nobody restarts, what is not yet on disk is but an acknowledgement not yet given: it may as well be there at once. And only who
\* leads raises its ceiling; others could do no more than to raise a floor that way.
Prompt ==
  /\ \A n \in Nodes, s \in Segments : disk[n][s] < Len(log[n][s]) => disk'[n][s] = Len(log[n][s]) /\ log' = log
  /\ \A n \in Nodes : ceiling'[n] # ceiling[n] => \E s \in Segments : lead[n][s] > 0

\* What nobody will look at again makes no difference between states: the acknowledgements of an epoch that nobody leads or will, cuts
\* of an epoch that is over for whom they are meant, and the record as it was known to who leads no more.
Counts(s, e) == rec[s].epoch <= e \/ \E n \in Nodes : lead[n][s] = e
Matters ==
  <<store, clocks, logs, lead, start, wish, sent, told, promised, committed, used,
    [s \in Segments |-> [e \in Epochs |-> IF Counts(s, e) THEN held[s][e] ELSE <<>>]],
    [s \in Segments |-> {cut \in cuts[s] : cut.epoch >= epoch[cut.to][s]}],
    [n \in Nodes |-> [s \in Segments |-> IF lead[n][s] > 0 THEN seen[n][s] ELSE <<>>]]>>
=============================================================================
