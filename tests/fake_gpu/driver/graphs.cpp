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

// One launch: which nodes are done.
class Launch {
  public:
    Launch(const Graph& graph, Device& device)
        : graph(graph), device(device), done(graph.nodes.size()) {}

    // Branches run at the same time, because a kernel of one may wait for a kernel of another.
    void run() {
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
            if (device.error == SUCCESS) node.work();
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

    const Graph& graph;
    Device& device;
    std::mutex lock;
    std::condition_variable changed;
    std::vector<bool> done;
};

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
    return enqueue(*stream, [executable, &device] {
        std::lock_guard<std::mutex> guard(executable->running);
        Launch(*executable->graph, device).run();
    });
}

API cuGraphGetNodes(void* handle, void**, size_t* count) {
    ENTER(Needs::Context);
    std::shared_ptr<Graph> graph = graphs().find(handle);
    if (!graph) return INVALID_HANDLE;
    *count = graph->nodes.size();
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
