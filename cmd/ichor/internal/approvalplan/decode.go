// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
)

// maxNodes bounds what aliases may blow a document up to: room for 5,000 machines of 40 values.
const maxNodes = 200_000

// decoder fills a Go value from YAML, strictly: a field that isn't known is a fault, as is a value of another type. It goes
// on after a fault, and remembers the line of everything that is given.
type decoder struct {
	file   string
	faults []*Fault
	lines  map[string]int
	nodes  int
}

func (d *decoder) fault(node *yaml.Node, path, format string, args ...any) {
	line := 1
	if node != nil {
		line = max(node.Line, 1)
	}
	d.faults = append(d.faults, &Fault{Position: Position{d.file, line}, About: path, What: fmt.Sprintf(format, args...), Code: cli.ExitUsage})
}

// decode fills a value. Path is where it is in the document, for instance machines[2].network.
func (d *decoder) decode(node *yaml.Node, into reflect.Value, path string) {
	for node.Kind == yaml.AliasNode && node.Alias != nil {
		node = node.Alias
	}
	if d.nodes++; d.tooLarge() {
		return
	}
	if node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null" {
		return // a field without a value is one that isn't given
	}
	switch into.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(into.Type().Elem())
		d.decode(node, fresh.Elem(), path)
		into.Set(fresh)
	case reflect.Struct:
		d.structure(node, into, path)
	case reflect.Map:
		d.labels(node, into, path)
	case reflect.Slice:
		d.list(node, into, path)
	default:
		d.scalar(node, into, path)
	}
}

func (d *decoder) tooLarge() bool { return d.nodes > maxNodes }

func (d *decoder) structure(node *yaml.Node, into reflect.Value, path string) {
	fields := fieldsOf(into)
	d.mapping(node, path, func(key, value *yaml.Node, at string) {
		field, known := fields[key.Value]
		if !known {
			names := make([]string, 0, len(fields))
			for name := range fields {
				names = append(names, name)
			}
			slices.Sort(names)
			d.fault(key, path, "unknown field %q%s", key.Value, suggest(key.Value, names))
			return
		}
		d.lines[at] = key.Line
		d.decode(value, field, at)
	})
}

func (d *decoder) labels(node *yaml.Node, into reflect.Value, path string) {
	d.mapping(node, path, func(key, value *yaml.Node, at string) {
		if into.IsNil() {
			into.Set(reflect.MakeMap(into.Type()))
		}
		d.lines[at] = key.Line
		text := reflect.New(into.Type().Elem()).Elem()
		d.decode(value, text, at)
		into.SetMapIndex(reflect.ValueOf(key.Value), text)
	})
}

// mapping visits the keys of a mapping, each once.
func (d *decoder) mapping(node *yaml.Node, path string, visit func(key, value *yaml.Node, at string)) {
	if node.Kind != yaml.MappingNode {
		d.fault(node, path, "want fields (name: value), not %s", describe(node))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch line, again := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			d.fault(key, path, "the name of a field is a word, not %s", describe(key))
			continue
		case key.ShortTag() == "!!merge":
			d.fault(key, path, "<< isn't supported; what machines have in common goes into defaults")
			continue
		case again:
			d.fault(key, path, "%q is given twice, before in line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		at := key.Value
		if path != "" {
			at = path + "." + key.Value
		}
		visit(key, value, at)
	}
}

func (d *decoder) list(node *yaml.Node, into reflect.Value, path string) {
	if node.Kind != yaml.SequenceNode {
		d.fault(node, path, "want a list (lines that begin with a hyphen), not %s", describe(node))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content)))
	for i, item := range node.Content {
		if d.tooLarge() {
			return
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = item.Line
		d.decode(item, into.Index(i), at)
	}
}

func (d *decoder) scalar(node *yaml.Node, into reflect.Value, path string) {
	if node.Kind != yaml.ScalarNode {
		d.fault(node, path, "want one value, not %s", describe(node))
		return
	}
	switch into.Kind() {
	case reflect.String:
		// The text as it stands, whatever YAML would make of it: serial numbers look like numbers, and are none.
		into.SetString(strings.TrimSpace(node.Value))
	case reflect.Int32:
		number, err := strconv.ParseInt(node.Value, 10, 32)
		if err != nil {
			d.fault(node, path, "%q is no whole number", node.Value)
			return
		}
		into.SetInt(number)
	default:
		panic("approvalplan: a document has a field of type " + into.Type().String())
	}
}

// fieldsOf are a struct's fields by their names in JSON; those of inlined structs are its own.
func fieldsOf(value reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range value.NumField() {
		name, options, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if options == "inline" {
			for inner, field := range fieldsOf(value.Field(i)) {
				fields[inner] = field
			}
			continue
		}
		fields[name] = value.Field(i)
	}
	return fields
}

func describe(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", node.Value)
	}
}
