// Graphs that can be launched.
#include "captures.h"

namespace fake {
namespace {

// A graph that is ready. Its launches never overlap.
struct Executable {
    explicit Executable(std::shared_ptr<Graph> graph) : graph(std::move(graph)) {}

    const std::shared_ptr<Graph> graph;
    std::mutex running;
};

Handles<Graph>& graphs() { return immortal<Handles<Graph>>(); }
Handles<Executable>& executables() { return immortal<Handles<Executable>>(); }

// One launch: the work of its nodes, and which nodes are done. Made with `capture_lock` held.
class Launch {
  public:
    Launch(std::shared_ptr<Executable> executable, Device& device)
        : executable(std::move(executable)), graph(*this->executable->graph), device(device),
          done(graph.nodes.size()) {
        for (const Node& node : graph.nodes) works.push_back(node.prepare());
    }

    // Branches run at the same time, because a kernel of one may wait for a kernel of another.
    void run() {
        std::lock_guard<std::mutex> one_at_a_time(executable->running);
        std::vector<std::thread> others;
        for (size_t branch = 1; branch < graph.branches; branch++) {
            others.emplace_back([this, branch] { run_branch(branch); });
        }
        run_branch(0);
        for (std::thread& other : others) other.join();
    }

  private:
    void run_branch(size_t branch) {
        for (size_t at = 0; at < graph.nodes.size(); at++) {
            const Node& node = graph.nodes[at];
            if (node.branch != branch) continue;
            await(node.needs);
            if (node.always || device.error == SUCCESS) works[at]();
            std::lock_guard<std::mutex> guard(lock);
            done[at] = true;
            changed.notify_all();
        }
    }

    void await(const std::vector<size_t>& needs) {
        std::unique_lock<std::mutex> guard(lock);
        changed.wait(guard, [&] {
            for (size_t need : needs) {
                if (!done[need]) return false;
            }
            return true;
        });
    }

    const std::shared_ptr<Executable> executable;
    const Graph& graph;
    Device& device;
    std::vector<Work> works;
    std::mutex lock;
    std::condition_variable changed;
    std::vector<bool> done;
};

// The work of a launch. With `capture_lock` held.
Work launched(const std::shared_ptr<Executable>& executable, Device& device) {
    auto launch = std::make_shared<Launch>(executable, device);
    return [launch] { launch->run(); };
}

}

size_t live_graphs() { return graphs().count() + executables().count(); }

}

using namespace fake;

API cuGraphInstantiateWithFlags(void** made, void* handle, unsigned long long) {
    ENTER(Needs::Context);
    std::shared_ptr<Graph> graph = graphs().find(handle);
    if (!graph) return INVALID_HANDLE;
    *made = executables().add(std::make_shared<Executable>(graph));
    return SUCCESS;
}

API cuGraphUpload(void* handle, void* of) {
    ENTER(Needs::Context);
    return executables().find(handle) && find_stream(of) ? SUCCESS : INVALID_HANDLE;
}

API cuGraphLaunch(void* handle, void* of) {
    ENTER(Needs::Context);
    std::shared_ptr<Executable> executable = executables().find(handle);
    std::shared_ptr<Stream> stream = find_stream(of);
    if (!executable || !stream) return INVALID_HANDLE;
    Device& device = stream->device;
    auto prepare = [executable, &device] { return launched(executable, device); };
    Added added = add_to_capture(*stream, prepare, true);
    if (added.is_captured) return added.result;
    Work work;
    {
        std::lock_guard<std::mutex> guard(capture_lock());
        work = prepare();
    }
    // After an error of the device too: its events must come.
    submit(*stream, std::move(work), true);
    return SUCCESS;
}

// Writes as many nodes as the caller has room for.
API cuGraphGetNodes(void* handle, void** nodes, size_t* count) {
    ENTER(Needs::Context);
    std::shared_ptr<Graph> graph = graphs().find(handle);
    if (!graph) return INVALID_HANDLE;
    size_t all = graph->nodes.size();
    for (size_t at = 0; nodes && at < *count; at++) {
        nodes[at] = at < all ? &graph->nodes[at] : nullptr;
    }
    *count = !nodes || all < *count ? all : *count;
    return SUCCESS;
}

API cuGraphExecDestroy(void* handle) {
    ENTER(Needs::Context);
    return executables().remove(handle) ? SUCCESS : INVALID_HANDLE;
}

API cuGraphDestroy(void* handle) {
    ENTER(Needs::Context);
    return graphs().remove(handle) ? SUCCESS : INVALID_HANDLE;
}
