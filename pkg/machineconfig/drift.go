// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
)

// Difference is one place where two configurations differ.
type Difference struct {
	// Document that it is in, and the path in it; an empty path is the whole document.
	Document string
	Path     Path
	// Want and Have are the values for people: JSON in one line, or a text as it is, secrets replaced, cut after 256
	// characters. What is absent on one side has the empty text there.
	Want, Have string
}

// secretShown stands for a secret that is shown to nobody.
const secretShown = "***"

// Compare finds what differs between a configuration that should run and one that does. How something is written (the
// order of keys, comments, defaults) is no difference. What is missing or too much as a whole is one difference. Documents
// that this version's machinery doesn't know, or not with these fields, are compared as they are, and their values aren't
// shown, because which of them are secrets isn't known. Masked values aren't shown either.
func Compare(want, have []byte, masks Masks) ([]Difference, error) {
	wanted, err := configloader.NewFromBytes(want)
	if err != nil {
		return nil, errors.New("the rendered configuration can't be read") // the loader's own words may quote it
	}
	wantTree, err := treeOf(wanted)
	if err != nil {
		return nil, err
	}
	wantShown, err := treeOf(wanted.RedactSecrets(secretShown))
	if err != nil {
		return nil, err
	}
	haveTree, haveShown, unknown, err := readRunning(have)
	if err != nil {
		return nil, err
	}
	if len(unknown) > 0 {
		raw, err := rawTree(want)
		if err != nil {
			return nil, err
		}
		for name := range unknown {
			if _, there := raw[name]; there {
				wantTree[name], wantShown[name] = raw[name], hidden{}
			}
		}
	}
	masks.cover(wantShown)
	masks.cover(haveShown)
	var differences []Difference
	names := maps.Clone(wantTree)
	maps.Copy(names, haveTree)
	for _, name := range sortedDocuments(names) {
		c := comparison{document: name, wantShown: wantShown[name], haveShown: haveShown[name]}
		w, wanted := wantTree[name]
		h, has := haveTree[name]
		switch {
		case !has:
			c.add(nil, w, nil)
		case !wanted:
			c.add(nil, nil, h)
		default:
			c.compare(nil, w, h)
		}
		differences = append(differences, c.differences...)
	}
	return differences, nil
}

// hidden is a value that is never shown.
type hidden struct{}

// readRunning reads what a machine runs. The documents that the machinery can't decode are named in unknown.
func readRunning(text []byte) (values, shown tree, unknown map[string]bool, err error) {
	provider, err := configloader.NewFromBytes(text)
	if err == nil {
		return readKnown(provider)
	}
	raw, err := rawTree(text)
	if err != nil {
		return nil, nil, nil, err
	}
	values, shown, unknown = tree{}, tree{}, map[string]bool{}
	for name, part := range splitDocuments(text) {
		provider, err := configloader.NewFromBytes(part)
		if err != nil {
			values[name], shown[name], unknown[name] = raw[name], hidden{}, true
			continue
		}
		known, knownShown, _, err := readKnown(provider)
		if err != nil {
			return nil, nil, nil, err
		}
		maps.Copy(values, known)
		maps.Copy(shown, knownShown)
	}
	return values, shown, unknown, nil
}

func readKnown(provider coreconfig.Provider) (values, shown tree, unknown map[string]bool, err error) {
	if values, err = treeOf(provider); err != nil {
		return nil, nil, nil, err
	}
	if shown, err = treeOf(provider.RedactSecrets(secretShown)); err != nil {
		return nil, nil, nil, err
	}
	return values, shown, nil, nil
}

// comparison is of one document.
type comparison struct {
	document             string
	wantShown, haveShown any
	differences          []Difference
}

func (c *comparison) compare(at Path, want, have any) {
	if reflect.DeepEqual(want, have) {
		return
	}
	switch want := want.(type) {
	case map[string]any:
		if have, ok := have.(map[string]any); ok {
			c.compareObjects(at, want, have)
			return
		}
	case []any:
		if have, ok := have.([]any); ok {
			c.compareLists(at, want, have)
			return
		}
	}
	c.add(at, want, have)
}

func (c *comparison) compareObjects(at Path, want, have map[string]any) {
	keys := maps.Clone(want)
	maps.Copy(keys, have)
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		w, wanted := want[name]
		h, has := have[name]
		switch {
		case !has:
			c.add(at.at(key(name)), w, nil)
		case !wanted:
			c.add(at.at(key(name)), nil, h)
		default:
			c.compare(at.at(key(name)), w, h)
		}
	}
}

// compareLists leaves out what lists have in common at both ends, so that an element that was put in, taken out or changed
// is one difference, wherever it is. A list that has nothing on one side is one difference too: Talos writes some that are
// missing as empty.
func (c *comparison) compareLists(at Path, want, have []any) {
	if len(want) > 1 && len(have) == 0 || len(want) == 0 && len(have) > 1 {
		c.add(at, want, have)
		return
	}
	start := 0
	for start < len(want) && start < len(have) && reflect.DeepEqual(want[start], have[start]) {
		start++
	}
	wantEnd, haveEnd := len(want), len(have)
	for wantEnd > start && haveEnd > start && reflect.DeepEqual(want[wantEnd-1], have[haveEnd-1]) {
		wantEnd, haveEnd = wantEnd-1, haveEnd-1
	}
	for i := start; i < max(wantEnd, haveEnd); i++ {
		switch {
		case i >= haveEnd:
			c.add(at.at(element(i)), want[i], nil)
		case i >= wantEnd:
			c.add(at.at(element(i)), nil, have[i])
		default:
			c.compare(at.at(element(i)), want[i], have[i])
		}
	}
}

func (c *comparison) add(at Path, want, have any) {
	difference := Difference{Document: c.document, Path: slices.Clone(at)}
	if want != nil {
		difference.Want = shownAt(c.wantShown, at)
	}
	if have != nil {
		difference.Have = shownAt(c.haveShown, at)
	}
	c.differences = append(c.differences, difference)
}

// shownAt is what people may see at a path.
func shownAt(value any, at Path) string {
	for _, step := range at {
		switch within := value.(type) {
		case map[string]any:
			value = within[step.Key]
		case []any:
			if step.Index < 0 || step.Index >= len(within) {
				return secretShown
			}
			value = within[step.Index]
		default:
			return secretShown
		}
	}
	if _, secret := value.(hidden); secret || value == nil {
		return secretShown
	}
	return shown(value)
}
