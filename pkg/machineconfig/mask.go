// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
)

// Masks are fields whose values come from Secrets. Talos doesn't know that they are secret, so they are hidden besides
// what its own redaction hides. A mask hides everything below it.
type Masks map[string][][]string

// MasksOf are the masks of patches.
func MasksOf(patches []*Patch) Masks {
	masks := Masks{}
	for _, patch := range patches {
		for document, pointers := range patch.secretPaths {
			for _, steps := range pointers {
				masks.add(document, steps)
			}
		}
	}
	return masks
}

// add hides a field. Where it lies in a list, the whole list is hidden: other patches move its elements.
func (m Masks) add(document string, steps []string) {
	for i, step := range steps {
		if _, err := strconv.Atoi(step); err == nil {
			steps = steps[:i]
			break
		}
	}
	if !slices.ContainsFunc(m[document], func(has []string) bool { return slices.Equal(has, steps) }) {
		m[document] = append(m[document], steps)
	}
}

// Join are both.
func (m Masks) Join(other Masks) Masks {
	joined := Masks{}
	for _, masks := range []Masks{m, other} {
		for document, paths := range masks {
			for _, steps := range paths {
				joined.add(document, steps)
			}
		}
	}
	return joined
}

// Texts write the masks down, sorted, for ParseMasks to read.
func (m Masks) Texts() []string {
	var texts []string
	for document, paths := range m {
		for _, steps := range paths {
			escaped := make([]string, len(steps))
			for i, step := range steps {
				escaped[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~", "~0"), "/", "~1")
			}
			texts = append(texts, document+"#/"+strings.Join(escaped, "/"))
		}
	}
	slices.Sort(texts)
	return texts
}

// ParseMasks reads what Texts wrote; what it can't read is left out.
func ParseMasks(texts []string) Masks {
	masks := Masks{}
	for _, text := range texts {
		document, path, found := strings.Cut(text, "#/")
		if !found {
			continue
		}
		steps := strings.Split(path, "/")
		for i, step := range steps {
			steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		}
		masks.add(document, steps)
	}
	return masks
}

// hides tells whether a path is, or lies below, a masked one.
func (m Masks) hides(document string, path Path) bool {
	return slices.ContainsFunc(m[document], path.under)
}

// cover replaces masked values in a tree by asterisks; the tree is changed.
func (m Masks) cover(trees tree) {
	for document, paths := range m {
		for _, steps := range paths {
			coverIn(trees[document], steps)
		}
	}
}

func coverIn(at any, steps []string) {
	fields, ok := at.(map[string]any)
	if !ok {
		return
	}
	value, there := fields[steps[0]]
	switch {
	case there && len(steps) == 1:
		fields[steps[0]] = covered(value)
	case there:
		coverIn(value, steps[1:])
	}
}

// covered keeps the shape of a value, so that the places of its parts stay what they are.
func covered(value any) any {
	switch value := value.(type) {
	case map[string]any:
		clean := map[string]any{}
		for key, member := range value {
			clean[key] = covered(member)
		}
		return clean
	case []any:
		clean := make([]any, len(value))
		for i := range value {
			clean[i] = covered(value[i])
		}
		return clean
	default:
		return secretShown
	}
}

// Redact replaces every secret of a configuration by asterisks: those that Talos knows, and masked ones.
func Redact(configuration []byte, masks Masks) ([]byte, error) {
	provider, err := configloader.NewFromBytes(configuration)
	if err != nil {
		// The loader's own words may quote the text.
		return nil, errors.New("redact a machine configuration: it can't be read as one")
	}
	text, err := provider.RedactSecrets(secretShown).EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
	if err != nil {
		return nil, errors.New("redact a machine configuration: encoding failed")
	}
	if len(masks) == 0 {
		return text, nil
	}
	return masks.text(text)
}

// text covers masked values in a configuration's text.
func (m Masks) text(text []byte) ([]byte, error) {
	var out bytes.Buffer
	writer := yaml.NewEncoder(&out)
	writer.SetIndent(4)
	for reader := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var node yaml.Node
		err := reader.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.New("redact a machine configuration: it can't be read back")
		}
		var head struct {
			Kind string `yaml:"kind"`
			Name string `yaml:"name"`
		}
		if err := node.Decode(&head); err != nil {
			return nil, errors.New("redact a machine configuration: a document is no object")
		}
		for _, steps := range m[documentName(head.Kind, head.Name)] {
			coverNode(&node, steps)
		}
		if err := writer.Encode(&node); err != nil {
			return nil, errors.New("redact a machine configuration: encoding failed")
		}
	}
	if err := writer.Close(); err != nil {
		return nil, errors.New("redact a machine configuration: encoding failed")
	}
	return out.Bytes(), nil
}

func coverNode(node *yaml.Node, steps []string) {
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	if len(steps) == 0 {
		*node = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: secretShown}
		return
	}
	if node.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == steps[0] {
			coverNode(node.Content[i+1], steps[1:])
		}
	}
}
