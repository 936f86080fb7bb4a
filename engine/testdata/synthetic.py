"""Values that are a function of a tensor's name and index, as in testdata/synth."""
import numpy as np, torch


def fnv1a64(s):
    h = 0xcbf29ce484222325
    for b in s.encode():
        h = ((h ^ b) * 0x100000001b3) & 0xFFFFFFFFFFFFFFFF
    return h


def uniform(name, count):
    """count numbers from -1 to 1."""
    with np.errstate(over="ignore"):
        z = np.arange(count, dtype=np.uint64) + np.uint64(fnv1a64(name)) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)


def values(name, shape, half=True):
    """A weight; half rounds those of more than one axis to f16."""
    n, fan = int(np.prod(shape)), int(np.prod(shape[1:])) if len(shape) > 1 else 0
    u = uniform(name, n)
    if name.endswith(".bias"): x = np.float32(0.02) * u
    elif len(shape) == 1: x = np.float32(1) + np.float32(0.1) * u
    else: x = np.float32((3 / fan) ** 0.5) * u
    if len(shape) > 1 and half: x = x.astype(np.float16).astype(np.float32)
    return torch.from_numpy(x.reshape(shape))


def flat(x):
    """A tensor as a list of numbers of seven digits."""
    return [float(f"{v:.7g}") for v in x.detach().reshape(-1).tolist()]


def fill(module, prefix, tensors):
    """Give a module's parameters f32 values, and keep their names and shapes."""
    state = module.state_dict()
    for key in state:
        state[key] = values(prefix + key, tuple(state[key].shape), half=False)
        tensors[prefix + key] = list(state[key].shape)
    module.load_state_dict(state)
    return module.eval()


def random(name, *shape):
    """An input."""
    return torch.from_numpy(uniform(name, int(np.prod(shape))).reshape(shape))


def some(x, most=400):
    """Evenly spaced values of a tensor."""
    v = x.reshape(-1)
    return flat(v[::max(1, v.numel() // most)])


def watch(net, streams):
    """Hooks that keep the mean squares of every linear layer's input columns, and what
    streams(name, output) picks of a block's output."""
    columns, blocks, hooks = {}, {}, []
    for name, m in net.named_modules():
        if isinstance(m, torch.nn.Linear):
            def seen(m, args, out, name=name):
                x = args[0].reshape(-1, args[0].shape[-1])
                columns[name] = flat((x * x).mean(0))
            hooks.append(m.register_forward_hook(seen))
        if name.count(".") == 1 and name.split(".")[0].endswith("transformer_blocks"):
            def done(m, args, out, name=name): blocks[name] = [some(x) for x in streams(name, out) if x is not None]
            hooks.append(m.register_forward_hook(done))
    return columns, blocks, hooks
