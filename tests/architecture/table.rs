//! The rooms of every crate from the ground up.

/// A path, what its code may name, and the reason, which a failure prints.
///
/// A path is the folder of a crate, and below it modules: the module `src/walk` is the file
/// `src/walk.rs` or the folder `src/walk/`. Braces write several rows as one. A row may name its
/// neighbours: modules of the same folder, and for a crate other crates. It may name only rows
/// above it, so there is no circle between rows. Code keeps to its own row and to the rows of all
/// folders above it. Where a folder has rows, each of its modules has one; all of its modules may
/// name the items of the folder's own `mod.rs`. Modules without rows may name one another, but not
/// in a circle, except for [`CIRCLES`].
pub(crate) const TABLE: &[(&str, &str, &str)] = &[
    ("kernels/src", "", "memory and the arithmetic on it know no other crate of ours"),
    ("transports/src", "kernels/src", "bytes move between ranks, whatever they mean"),
    ("src", "kernels/src transports/src", "the library stands on transports and kernels alone"),
    ("src/pictures", "src", "a picture shows what the library made, and has no effects"),
    (
        "src/cluster",
        "src src/pictures",
        "what is known of clusters stands on the library, and has no effects",
    ),
    (
        "src/testing",
        "kernels/src src transports/src",
        "a simulated world is made of the library's seams, which know no simulation",
    ),
    ("examples/kernels/src", "kernels/src", "layers and counts know neither ranks nor models"),
    ("examples/trainer/src", "examples/kernels/src kernels/src src", "it stands on the library"),
    (
        "examples/gpu/src",
        "examples/kernels/src examples/trainer/src kernels/src",
        "it knows no axis",
    ),
    (
        "examples/corpus/src",
        "examples/trainer/src src",
        "a text gives tokens, whatever is trained on them",
    ),
    (
        "examples/lab/src",
        "examples/gpu/src examples/trainer/src src src/pictures",
        "the trainer is examined by its public parts, and names none of those who do it",
    ),
    (
        "examples/planner/src",
        "examples/trainer/src src src/cluster src/pictures",
        "the planner is arithmetic; it starts no rank",
    ),
    (
        "examples/search/src",
        "examples/gpu/src examples/trainer/src src src/pictures",
        "a search trains trials; nothing below it knows that it is one of many",
    ),
    ("src/{labels,wire}", "", "numbers of names, and bytes of plain data, whatever they say"),
    (
        "src/schedule",
        "labels",
        "schedules and their readers are plain data; they know no maker and no executor",
    ),
    ("src/schedule/{collective,hosts,trace,walk}", "", "the law depends on nothing"),
    ("src/schedule/layout", "collective", "chunks of a whole, and what a buffer holds of them"),
    ("src/schedule/conflict", "walk", "conflict order is a reading of the law alone"),
    (
        "src/schedule/verify",
        "collective walk",
        "the checker knows the law and what is promised, and no executor",
    ),
    ("src/schedule/simulate", "conflict walk", "the simulator prices steps, whatever they are for"),
    ("src/algorithms", "schedule", "an algorithm makes schedules; it knows none of their readers"),
    ("src/lower", "labels schedule", "lowering is pure and knows no algorithm"),
    ("src/topology", "labels wire", "topologies are data about machines, not executors"),
    ("src/topology/{model,rings,transport}", "", "a graph of a machine depends on nothing"),
    ("src/topology/system", "model", "the devices of a machine make a graph"),
    ("src/topology/device_links", "model rings", "what follows from a graph and its rings"),
    ("src/topology/detect", "device_links system", "the one part that asks the machine"),
    (
        "src/tuner",
        "algorithms schedule topology",
        "the tuner is pure: equal questions have equal answers",
    ),
    ("src/execute", "lower schedule", "the executor knows programs, never algorithms"),
    (
        "src/execute/{cursor,error,moved,observer,polling,record,watcher}",
        "",
        "what programs and messages share knows neither of them",
    ),
    ("src/execute/messages", "cursor polling record", "messages run beside programs, not in them"),
    ("src/execute/peer_stream", "cursor", "a stream carries parts, whatever asks for them"),
    ("src/execute/streams", "peer_stream polling", "the streams of a rank know no program"),
    ("src/execute/stores", "", "a kind of store is the caller's choice, whatever the program does"),
    ("src/execute/run", "peer_stream polling stores streams", "one loop walks every program"),
    ("src/execute/{board_waits,registered}", "polling run", "ways to run a program, apart"),
    ("src/world", "labels wire", "processes become ranks without any collective"),
    ("src/world/{launch,peer,sentence,verbs}", "", "what is read and said depends on nothing"),
    ("src/world/calls", "sentence", "what ranks have called is data, whoever asks for it"),
    ("src/world/service", "calls peer sentence verbs", "a service does not know how ranks joined"),
    ("src/world/bootstrap", "launch peer sentence service verbs", "joining starts a service"),
    ("src/element", "", "what an element is depends on nothing"),
    ("src/error", "algorithms world", "an error is data, which every room below can make"),
    (
        "src/control",
        "execute schedule topology world",
        "how ranks agree and are connected depends on no call",
    ),
    ("src/status", "control error world", "a status is read of what calls have noted"),
    (
        "src/engine",
        "algorithms control element error execute lower schedule status topology tuner wire world",
        "an engine makes calls; it does not know how its ranks joined or how it is used",
    ),
    (
        "src/requests",
        "control element engine error execute schedule world",
        "requests lend an engine to a thread, whatever they call",
    ),
    (
        "src/comm",
        "algorithms control element engine error execute requests schedule status topology tuner \
         wire world",
        "the front door joins all rooms",
    ),
    ("src/comm/join", "", "a communicator is made without a call"),
    ("src/comm/api", "join", "what users call"),
    (
        "src/cuda",
        "algorithms comm control element engine error labels lower schedule topology tuner world",
        "the same calls on the memory of GPUs: a kernel takes the place of the executor",
    ),
    ("src/cluster/{rates,search}", "", "rates and searches know graphs alone"),
    ("src/cluster/proof", "", "a proof knows schedules alone"),
    ("src/cluster/read", "", "a reader knows texts, and not what is made of them"),
    ("src/cluster/build", "rates read", "a cluster is made of what was read of its hosts"),
    ("src/cluster/{picture,predict}", "search", "what follows from a graph and its rings"),
    (
        "examples/trainer/src/tensor",
        "",
        "a layer computes on slices; it knows no model and no other rank",
    ),
    (
        "examples/trainer/src/ranks",
        "tensor",
        "groups of ranks know numbers and shards, and no axis",
    ),
    (
        "examples/trainer/src/tensor_parallel",
        "ranks tensor",
        "layers that are divided over ranks; they know no model",
    ),
    (
        "examples/trainer/src/model",
        "ranks tensor tensor_parallel",
        "a model is made of layers; other axes enter it at its interfaces",
    ),
    (
        "examples/trainer/src/data_parallel",
        "model ranks tensor",
        "a form of data parallelism is a store; it knows no other axis",
    ),
    (
        "examples/trainer/src/context_parallel",
        "model ranks tensor",
        "context parallelism knows no other axis",
    ),
    (
        "examples/trainer/src/expert_parallel",
        "model ranks tensor tensor_parallel",
        "experts are divided layers; they know no pipeline and no training",
    ),
    (
        "examples/trainer/src/pipeline_parallel",
        "ranks tensor",
        "a pipeline moves numbers between stages, whatever they compute",
    ),
    (
        "examples/trainer/src/train",
        "context_parallel data_parallel expert_parallel model pipeline_parallel ranks tensor \
         tensor_parallel",
        "a step joins the axes; what checks it is another crate",
    ),
];

/// The modules of a folder that name one another in a circle, and why they stay so.
pub(crate) const CIRCLES: &[(&str, &str)] = &[
    (
        "transports/src/ib/{adapter,candidates,device,error,events,library}",
        "an error tells what the events of its adapter say",
    ),
    (
        "transports/src/registered/{arena,buffer}",
        "an arena lends buffers, and a buffer gives its place back",
    ),
    (
        "src/testing/network/{state,stream,thread}",
        "streams and threads are the ends of the network that makes them",
    ),
    (
        "examples/kernels/src/layers/{call,machine}",
        "a call copies by the machine, which launches kernels over its slices",
    ),
];
