//! A small GPT, trained over every axis of parallelism there is, one file an idea.
//!
//! # What is here to be learnt
//!
//! Training on many processors is a handful of ways to cut a model, its data and its optimizer,
//! each of which is paid for with a collective. Every axis here is one file that opens with what is
//! cut, which collective runs where, and what it costs; and every axis is compared with the same
//! training in a single process, number by number.
//!
//! # In reading order
//!
//! | module | what it is |
//! |---|---|
//! | [`math`], [`matmul`] | numbers, loops compiled for the machine, matrix products |
//! | [`linear`], [`norm`], [`gelu`], [`attention`], [`embed`], [`loss`] | layers: forward and backward written out |
//! | [`device`] | what a device must be able to do |
//! | [`config`], [`layout`] | the model's tensors; where each lies in one flat buffer, here and in the whole model |
//! | [`axes`] | where ranks of one model meet |
//! | [`feed_forward`], [`block`], [`gpt`] | the model |
//! | [`store`] | where weights and gradients are |
//! | [`optim`], [`schedule`] | what a step does, and how large it is |
//! | [`random`], [`data`], [`bpe`] | numbers, rows and tokens that depend on no rank |
//! | [`group`] | the ranks that an axis joins: the one seam to the collectives |
//! | [`mesh`], [`setup`], [`hybrid`] | which rank does what; the choices; one rank of any mesh |
//! | [`tp`], [`sp`], [`vocab`] | matrices, tokens and the vocabulary divided over the tensor axis |
//! | [`cp_ring`], [`cp_ulysses`], [`zigzag`] | positions divided: keys that walk, heads for positions, fair shares |
//! | [`pp_plan`], [`pp_trace`], [`pp_draw`], [`pp`], [`peers`] | pipelines: plans as data, their clock, their pictures, who executes them |
//! | [`moe`], [`experts`], [`ep`], [`placement`], [`moving`] | experts: who goes where, the layer, the journey, who keeps whom, moving house |
//! | [`partial`], [`exchange`] | sums over several axes; collectives that are no sums |
//! | [`theory`], [`combine`] | what a rank should hold and send; which axes go together |
//! | [`fault`] | mistakes, made on purpose |
//! | [`dp`], [`accum`] | data parallelism in buckets; micro-batches |
//! | [`shards`], [`zero1`], [`zero2`], [`fsdp`], [`sharding`] | optimizer, gradients, weights in parts |
//! | [`clip`] | the norm of a gradient that nobody has whole |
//! | [`local_sgd`] | weights averaged now and then |
//! | [`session`], [`timeline`], [`bubble`] | the step, and where its time goes |
//! | [`judge`], [`sample`], [`chart`] | the loss on what it has not seen; text from a model; pictures of a run |
//! | [`precision`] | 16 bits for layers, 32 for weights |
//! | [`reshard`], [`checkpoint`] | from any mesh to any other; to disk and back |
//! | [`memory`], [`mod@bench`] | bytes a rank beside theory; speed beside the matrix products alone |
//! | [`verify`] | equal to one process? |
//! | [`tour`], [`tour_mesh`], [`tour_row`] | every axis beside one process, one row each |
//!
//! One process is the reference of all these; what it is compared with itself is PyTorch, by
//! `pytorch/compare.py`.
#![deny(unsafe_code)]

pub mod accum;
pub mod attention;
pub mod axes;
pub mod bench;
pub mod block;
pub mod bpe;
pub mod bubble;
pub mod chart;
pub mod checkpoint;
pub mod clip;
pub mod combine;
pub mod config;
pub mod cp_ring;
pub mod cp_ulysses;
pub mod data;
pub mod device;
pub mod dp;
pub mod embed;
pub mod ep;
pub mod exchange;
pub mod experts;
pub mod fault;
pub mod feed_forward;
pub mod fsdp;
pub mod gelu;
pub mod gpt;
pub mod group;
pub mod hybrid;
pub mod judge;
pub mod layout;
pub mod linear;
pub mod local_sgd;
pub mod loss;
pub mod math;
pub mod matmul;
pub mod memory;
pub mod mesh;
pub mod mixed;
pub mod moe;
pub mod moving;
pub mod norm;
pub mod optim;
pub mod partial;
pub mod peers;
pub mod placement;
pub mod pp;
pub mod pp_draw;
pub mod pp_plan;
pub mod pp_trace;
pub mod precision;
pub mod random;
pub mod reshard;
pub mod sample;
pub mod schedule;
pub mod session;
pub mod setup;
pub mod sharding;
pub mod shards;
pub mod sp;
pub mod store;
pub mod theory;
pub mod timeline;
pub mod tour;
mod tour_bits;
mod tour_data;
pub mod tour_mesh;
pub mod tour_row;
pub mod tp;
pub mod verify;
pub mod vocab;
pub mod zero1;
pub mod zero2;
pub mod zigzag;
