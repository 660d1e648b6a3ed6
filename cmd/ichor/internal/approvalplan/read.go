// SPDX-License-Identifier: Apache-2.0

package approvalplan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// MaxSize is the largest file that is read, in bytes: room for more than 5,000 machines.
const MaxSize = 4 << 20

// Item is an entry with the defaults of its document put under it, and where it stands.
type Item struct {
	Entry
	// own are the settings of the entry itself, before defaults.
	own Settings
	// path of the entry in its document, for instance machines[2].
	path  string
	file  string
	lines map[string]int
	// disks are the paths of the decision's disks within the entry: installDisk, disks[0], ...
	disks []string
}

// Read reads the documents of one file, which is named as people know it. All that is wrong is told at once.
func Read(file string, in io.Reader) ([]*Item, []*Fault) {
	wrong := func(line int, format string, args ...any) *Fault {
		return &Fault{Position: Position{file, line}, What: fmt.Sprintf(format, args...), Code: cli.ExitUsage}
	}
	text, err := io.ReadAll(io.LimitReader(in, MaxSize+1))
	if err != nil {
		return nil, []*Fault{wrong(1, "%v", err)}
	}
	if len(text) > MaxSize {
		return nil, []*Fault{wrong(1, "the file is larger than %d MiB", MaxSize>>20)}
	}
	var items []*Item
	var faults []*Fault
	documents := 0
	for parser := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var node yaml.Node
		err := parser.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, what := syntax(err)
			return items, append(faults, wrong(line, "no YAML: %s", what))
		}
		if len(node.Content) == 0 || node.Content[0].Kind == yaml.ScalarNode && node.Content[0].ShortTag() == "!!null" {
			continue
		}
		documents++
		found, bad := document(file, node.Content[0])
		items, faults = append(items, found...), append(faults, bad...)
	}
	if documents == 0 {
		faults = append(faults, wrong(1, "the file has no document; want apiVersion: %s, kind: %s", APIVersion, Kind))
	}
	return items, faults
}

// document decodes one document.
func document(file string, node *yaml.Node) ([]*Item, []*Fault) {
	decoder := &decoder{file: file, lines: map[string]int{}}
	if foreign := decoder.foreign(node); foreign {
		return nil, decoder.faults
	}
	var read Document
	decoder.decode(node, reflect.ValueOf(&read).Elem(), "")
	if decoder.tooLarge() { // what else was found may come of the cut
		decoder.faults = nil
		decoder.fault(node, "", "the document is too large: more than %d values", maxNodes)
		return nil, decoder.faults
	}
	decoder.enums("defaults", read.Defaults)
	var items []*Item
	for i := range read.Machines {
		path := fmt.Sprintf("machines[%d]", i)
		item := &Item{Entry: read.Machines[i], own: read.Machines[i].Settings, path: path, file: file, lines: decoder.lines}
		decoder.enums(path, item.own)
		decoder.diskRoles(path, item.Disks)
		item.Settings = item.own.over(read.Defaults)
		items = append(items, item)
	}
	if len(read.Machines) == 0 && len(decoder.faults) == 0 {
		decoder.fault(node, "machines", "the plan names no machine")
	}
	return items, decoder.faults
}

// foreign refuses a document that is something else, without going into its fields.
func (d *decoder) foreign(node *yaml.Node) bool {
	if node.Kind != yaml.MappingNode {
		d.fault(node, "", "want a document with apiVersion: %s, kind: %s, not %s", APIVersion, Kind, describe(node))
		return true
	}
	said := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		said[node.Content[i].Value] = node.Content[i+1]
	}
	for _, want := range [][2]string{{"apiVersion", APIVersion}, {"kind", Kind}} {
		got := said[want[0]]
		switch {
		case got == nil:
			d.fault(node, "", "%s is missing; want %s: %s", want[0], want[0], want[1])
			return true
		case got.Value != want[1]:
			d.fault(got, want[0], "%q isn't what this program reads; want %s", got.Value, want[1])
			return true
		}
	}
	return false
}

// enums refuses words that are none of a field's.
func (d *decoder) enums(path string, settings Settings) {
	oneOf(d, path+".role", settings.Role, v1alpha1.RoleControlPlane, v1alpha1.RoleWorker)
	if settings.Network != nil {
		oneOf(d, path+".network.addressing", settings.Network.Addressing, v1alpha1.AddressingDHCP, v1alpha1.AddressingStatic)
	}
}

func (d *decoder) diskRoles(path string, disks []v1alpha1.MachineDisk) {
	for i, disk := range disks {
		at := fmt.Sprintf("%s.disks[%d]", path, i)
		if disk.Role == "" {
			d.faults = append(d.faults, &Fault{Position: Position{d.file, d.lines[at]}, About: at, What: "role is missing: what the disk is for", Code: cli.ExitUsage})
		}
		oneOf(d, at+".role", disk.Role, v1alpha1.DiskSystem, v1alpha1.DiskEphemeral, v1alpha1.DiskStorage, v1alpha1.DiskUserVolume, v1alpha1.DiskUnused)
	}
}

func oneOf[W ~string](d *decoder, path string, word W, known ...W) {
	if word == "" {
		return
	}
	names := make([]string, 0, len(known))
	for _, name := range known {
		if name == word {
			return
		}
		names = append(names, string(name))
	}
	d.faults = append(d.faults, &Fault{
		Position: Position{d.file, d.lines[path]}, About: path, Code: cli.ExitUsage,
		What: fmt.Sprintf("%q is none of them%s", string(word), suggest(string(word), names)),
	})
}

// atLine is how the parser says where; its errors have no other form that can be had.
var atLine = regexp.MustCompile(`line (\d+)`)

// syntax takes the line out of a parser's error.
func syntax(err error) (line int, what string) {
	what = strings.TrimPrefix(err.Error(), "yaml: ")
	if found := atLine.FindAllStringSubmatch(what, -1); len(found) > 0 {
		line, _ = strconv.Atoi(found[len(found)-1][1])
	}
	return max(line, 1), what
}

// Position is where a field of the machine's spec is given, for instance network.gateway: in the entry, else in the
// defaults, else where the entry begins.
func (i *Item) Position(field string) Position {
	return i.at(i.inFile(field))
}

// at is where a path of the entry is given.
func (i *Item) at(path string) Position {
	for at := path; at != ""; at = parent(at) {
		for _, root := range []string{i.path, "defaults"} {
			if line, given := i.lines[root+"."+at]; given {
				return Position{i.file, line}
			}
		}
	}
	return Position{i.file, max(i.lines[i.path], 1)}
}

// inFile turns a field of the spec into the plan's: spec.approval.reason is reason, and the first of spec.disks may be
// installDisk.
func (i *Item) inFile(field string) string {
	field = strings.TrimPrefix(field, "approval.")
	for n, path := range i.disks {
		if rest, found := strings.CutPrefix(field, fmt.Sprintf("disks[%d]", n)); found {
			return path + rest
		}
	}
	return field
}

// parent cuts the last member off a path; empty at the top.
func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// Label is what a person knows the entry by.
func (i *Item) Label() string {
	if keys := i.given(); len(keys) > 0 {
		return keys[0].field + " " + keys[0].value
	}
	return i.path
}

// Fault makes a fault about a field of the entry's machine; about the entry itself if the field is empty.
func (i *Item) Fault(code int, field, what string) *Fault {
	return i.faultAt(code, i.inFile(field), what)
}

// faultAt makes a fault about a path of the entry.
func (i *Item) faultAt(code int, path, what string) *Fault {
	about := i.Label()
	if keys := i.given(); path != "" && (len(keys) == 0 || path != keys[0].field) {
		about += ": " + path
	}
	return &Fault{Position: i.at(path), About: about, What: what, Code: code}
}
