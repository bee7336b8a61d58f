"""Rules of the source, as functions from modules to sentences that say what breaks them.

Each takes the modules of a package by name (`tools.source.read_modules`) and returns a list that
is empty where the rule is kept.
"""

import ast
import re
from collections import defaultdict

from tools.source import (
    classes_of,
    cycles,
    functions_of,
    imports_of,
    length_of,
    methods_of,
    module_edges,
    resolve,
)

MODULE_LINES, FUNCTION_LINES, CLASS_METHODS = 500, 60, 25
# Twenty, and the two sizes of tiles, which users of long recordings choose separately; and what is
# known before: names of states, constraints on transitions and on the start, fixed parts, and how
# long states last.
CONSTRUCTOR_PARAMETERS = 27


def layer_of(name):
    """Return the first part of a module's name below the package; the package's own name for it."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def import_cycles(modules, homes):
    """No module reaches itself, by imports inside functions neither."""
    return [" ↔ ".join(group) for group in cycles(module_edges(modules, homes))]


def layers_out_of_order(modules, homes, rows):
    """Each module imports only from rows of layers below its own, or from its own layer.

    Layers of one row do not know each other.  The package itself has its version for everyone.
    """
    height = {layer: row for row, layers in enumerate(rows) for layer in layers}
    package = next(iter(modules)).split(".")[0]
    problems = [
        f"{name}: {layer_of(name)!r} is in no layer"
        for name in modules
        if name != package and layer_of(name) not in height
    ]
    if problems:
        return problems
    for name, targets in module_edges(modules, homes).items():
        layer = layer_of(name)
        for target in sorted(targets - {package}):
            other = layer_of(target)
            if other != layer and (layer == package or height[other] >= height[layer]):
                problems.append(f"{name} ({layer}) imports {target} ({other})")
    return problems


def whole_package_imported(modules):
    """``import sojourn`` hides which of its names are used."""
    package = next(iter(modules)).split(".")[0]
    return [
        f"{name} imports {package} as a whole"
        for name, module in modules.items()
        for found in imports_of(module.tree)
        if found.module == package and found.name is None
    ]


def imported_by_name(modules, allowed):
    """Modules are imported by name, out of sight of these rules, only where it must be."""
    functions = {"import_module", "importlib.import_module", "__import__"}
    return [
        f"{name} calls {ast.unparse(node.func)}"
        for name, module in modules.items()
        if not {name, layer_of(name)} & allowed
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in functions
    ]


def imported_from(modules, homes, layers, forbidden):
    """Modules of some layers import nothing of a layer, inside functions neither."""
    problems = []
    for name, module in modules.items():
        if layer_of(name) in layers:
            targets = {resolve(found, modules, homes) for found in imports_of(module.tree)}
            bad = sorted(t for t in targets if t is not None and layer_of(t) == forbidden)
            problems += [f"{name} imports {target}" for target in bad]
    return problems


def libraries_imported(modules, layer, known):
    """A layer knows some libraries and no others."""
    return [
        f"{name} imports {found.target}"
        for name, module in modules.items()
        if layer_of(name) == layer
        for found in imports_of(module.tree)
        if found.module.split(".")[0] not in known
    ]


def long_modules(modules, exceptions=()):
    """No module is longer than a person reads in one sitting."""
    return [
        f"{name} has {module.n_lines} lines"
        for name, module in modules.items()
        if module.n_lines > MODULE_LINES and name not in exceptions
    ]


def long_functions(modules, exceptions=()):
    """No function is longer than a screen, without its docstring.

    An exception covers what is defined inside the function too.
    """
    return [
        f"{name}: {function} has {length_of(node)} lines"
        for name, module in modules.items()
        for function, node in functions_of(module.tree)
        if length_of(node) > FUNCTION_LINES
        and not any(f"{layer_of(name)}: {function}.".startswith(f"{e}.") for e in exceptions)
    ]


def many_methods(modules):
    """No class has more methods and properties than a reader can hold."""
    return [
        f"{name}: {node.name} has {len(methods_of(node))} methods"
        for name, module in modules.items()
        for node in classes_of(module.tree)
        if len(methods_of(node)) > CLASS_METHODS
    ]


def many_parameters(modules, layer):
    """No constructor of a layer's classes has more parameters than its users can choose."""
    problems = []
    for name, module in modules.items():
        for node in classes_of(module.tree) if layer_of(name) == layer else ():
            for child in node.body:
                if isinstance(child, ast.FunctionDef) and child.name == "__init__":
                    given = child.args
                    n = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                    if n > CONSTRUCTOR_PARAMETERS:
                        problems.append(f"{name}: {node.name} has {n} parameters")
    return problems


# Names of classes that say where numbers are computed or lie.
PLACES = re.compile(r"Backend|Engine|Place|Cluster|Kernel|Tensor|Remote|Device")


def knows_where(modules, layer):
    """A layer does not ask where numbers are computed.

    It neither names a device nor finds out by `getattr` with a default, `hasattr`, or `isinstance`.
    """
    problems = []
    for name, module in modules.items():
        if layer_of(name) != layer:
            continue
        for number, line in enumerate(module.text.splitlines(), 1):
            if "device" in line.lower():
                problems.append(f"{name}, line {number}: {line.strip()}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and _asks_where(node):
                problems.append(f"{name}, line {node.lineno}: {ast.unparse(node)}")
    return problems


def _asks_where(call):
    function = ast.unparse(call.func)
    if function == "getattr":
        return len(call.args) > 2
    if function == "isinstance":
        return bool(PLACES.search(ast.unparse(call.args[1])))
    return function == "hasattr"


def names_with_two_meanings(modules):
    """A class has a name of its own: no other module defines a class of that name."""
    homes = defaultdict(list)
    for name, module in modules.items():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return [
        f"{class_name} is defined in {' and in '.join(found)}"
        for class_name, found in homes.items()
        if len(found) > 1
    ]


# ---- of the tests themselves --------------------------------------------------------------------


def is_test(name):
    """Say whether a module holds tests."""
    return name.split(".")[-1].startswith("test_")


def tests_imported(modules):
    """No module imports from a module of tests: what they share is in tests.support."""
    return [
        f"{name} imports {found.target}"
        for name, module in modules.items()
        for found in imports_of(module.tree)
        if found.module.split(".")[0] == "tests"
        and (is_test(found.module) or is_test(found.target))
    ]


def programs_imported(modules, exceptions):
    """Tests use no benchmark or experiment, except those that test one: name -> programs."""
    return [
        f"{name} imports {found.target}"
        for name, module in modules.items()
        for found in imports_of(module.tree)
        if found.module.split(".")[0] in ("benchmarks", "experiments")
        and not {found.module, found.target} & set(exceptions.get(name, ()))
    ]
