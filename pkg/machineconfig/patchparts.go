// SPDX-License-Identifier: Apache-2.0

package machineconfig

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	coreconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	schemavalidation "k8s.io/kube-openapi/pkg/validation/validate"

	"maesh.dev/ichor/pkg/apis/ichor/talosschema"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
)

// PatchParts are the parts of a patch that are Talos' own, as JSON.
type PatchParts struct {
	// Machine and Cluster are parts of the sections of Talos' v1alpha1 configuration; empty if there are none.
	Machine, Cluster []byte
	// Documents are the other documents.
	Documents [][]byte
	// SecretPaths are JSON pointers to the fields that are filled from Secrets: see parsePointer.
	SecretPaths []string
}

// CheckPatch judges the parts of a patch: whether Talos' decoder takes each, strictly, and whether one holds a secret.
// The decoder has the last word; Talos' schema only tells where in a refused part the fault is. No error repeats a value
// that could be a secret.
func CheckPatch(parts PatchParts, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, section := range []struct {
		name, definition string
		raw              []byte
	}{{"machine", talosschema.Machine, parts.Machine}, {"cluster", talosschema.Cluster, parts.Cluster}} {
		if len(section.raw) == 0 {
			continue
		}
		wrapped := fmt.Appendf(nil, `{"version":"v1alpha1",%q:%s}`, section.name, section.raw)
		errs = append(errs, checkPart(section.raw, wrapped, talosschema.Definition(section.definition), section.name, path.Child(section.name))...)
	}
	seen := map[[2]string]bool{}
	for i, raw := range parts.Documents {
		errs = append(errs, checkDocument(raw, seen, path.Child("documents").Index(i))...)
	}
	if len(errs) > 0 {
		return errs
	}
	return checkSecretPaths(parts, path)
}

// SecretPlaceholder stands for a secret where nobody has it: while a patch is judged, and where a configuration is rendered
// only to be shown. It is a text that is valid base64, which Talos writes keys in, and a relative reference.
const SecretPlaceholder = "aWNob3ItcGxhY2Vob2xkZXI="

// checkSecretPaths judges the parts with their secrets filled in.
func checkSecretPaths(parts PatchParts, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, text := range parts.SecretPaths {
		at := path.Child("secretValues").Index(i).Child("path")
		leads, err := parsePointer(text)
		if err != nil {
			errs = append(errs, field.Invalid(at, text, err.Error()))
			continue
		}
		filled, err := parts.fill(leads, SecretPlaceholder)
		if err != nil {
			errs = append(errs, field.Invalid(at, text, err.Error()))
			continue
		}
		if _, err := filled.documents(); err != nil {
			errs = append(errs, field.Invalid(at, text, "leads to no field that Talos knows, or to one that is no text"))
			continue
		}
		parts = filled
	}
	return errs
}

func checkDocument(raw []byte, seen map[[2]string]bool, path *field.Path) field.ErrorList {
	var head struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
		Name       any `json:"name"`
		Op         any `json:"op"`
		Path       any `json:"path"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return field.ErrorList{field.Invalid(path, "", "must be an object")}
	}
	if head.Kind == nil && head.Op != nil && head.Path != nil {
		return field.ErrorList{field.Invalid(path, "", "is an operation of a JSON patch (RFC 6902), which Talos doesn't take for a configuration of several documents; "+
			"write the fields as they are to be, and what is to go with $patch: delete")}
	}
	var errs field.ErrorList
	apiVersion, kind, name := word(head.APIVersion, path.Child("apiVersion"), &errs), word(head.Kind, path.Child("kind"), &errs), word(head.Name, path.Child("name"), &errs)
	switch {
	case len(errs) > 0:
		return errs
	case apiVersion == "":
		errs = append(errs, field.Required(path.Child("apiVersion"), "the document's version, so far always v1alpha1"))
	case apiVersion != "v1alpha1":
		errs = append(errs, field.NotSupported(path.Child("apiVersion"), apiVersion, []string{"v1alpha1"}))
	}
	schema := talosschema.Document(kind)
	switch {
	case kind == "":
		errs = append(errs, field.Required(path.Child("kind"), "what document it is; Talos' v1alpha1 configuration goes into spec.machine and spec.cluster"))
	case schema == nil:
		errs = append(errs, field.NotSupported(path.Child("kind"), kind, talosschema.Kinds()))
	}
	if id := [2]string{kind, name}; kind != "" {
		if seen[id] {
			errs = append(errs, field.Duplicate(path, strings.TrimSuffix(kind+"/"+name, "/")))
		}
		seen[id] = true
	}
	if len(errs) > 0 {
		return errs
	}
	return checkPart(raw, raw, schema, "", path)
}

// word is a text; anything else but null is a fault.
func word(value any, path *field.Path, errs *field.ErrorList) string {
	text, ok := value.(string)
	if !ok && value != nil {
		*errs = append(*errs, field.Invalid(path, "", "must be a text"))
	}
	return text
}

// checkPart decodes one part and looks for secrets. The section is the key of the part in the loaded configuration, empty
// for a document.
func checkPart(raw, loadable []byte, schema *spec.Schema, section string, path *field.Path) field.ErrorList {
	errs := validation.NoPrivateKey(raw, path)
	loaded, err := load(loadable)
	if err != nil {
		if located := locate(raw, schema, path); len(located) > 0 {
			return append(errs, located...)
		}
		return append(errs, field.Invalid(path, "", "Talos doesn't take it: "+withoutValues(err)))
	}
	if len(errs) > 0 {
		return errs
	}
	secrets, err := findSecrets(loaded, section, path)
	if err != nil {
		return append(errs, field.InternalError(path, err))
	}
	return append(errs, secrets...)
}

// load runs the machinery's strict decoder, which panics on some input.
func load(text []byte) (provider coreconfig.Provider, err error) {
	defer func() {
		if recover() != nil {
			provider, err = nil, errors.New("it can't be decoded")
		}
	}()
	return configloader.NewFromBytes(text, configloader.WithAllowPatchDelete())
}

// quoted are values that decoders repeat in their errors.
var quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|'[^']*'")

// withoutValues is an error's text in one line, without what may come from the input.
func withoutValues(err error) string {
	const most = 300
	text := strings.Join(strings.Fields(quoted.ReplaceAllString(err.Error(), "…")), " ")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

// locate compares a refused part with Talos' schema.
func locate(raw []byte, schema *spec.Schema, path *field.Path) field.ErrorList {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil || schema == nil {
		return nil
	}
	var errs field.ErrorList
	result := schemavalidation.NewSchemaValidator(schema, nil, "", strfmt.Default).Validate(value)
	for _, err := range result.Errors {
		var fault *openapierrors.Validation
		if !errors.As(err, &fault) {
			continue
		}
		at := fault.Name
		if fault.Code() == openapierrors.UnallowedPropertyCode {
			at += "." + fmt.Sprint(fault.Value) // the value is the property's name
		}
		if strings.HasSuffix(at, "$patch") || fault.Code() == openapierrors.RequiredFailCode {
			continue // a patch is a part, and Talos' own word in it
		}
		errs = append(errs, describe(fault, below(path, at)))
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	return slices.CompactFunc(errs, func(a, b *field.Error) bool { return a.Field == b.Field })
}

// describe says what is wrong with a field without its value.
func describe(fault *openapierrors.Validation, path *field.Path) *field.Error {
	switch fault.Code() {
	case openapierrors.UnallowedPropertyCode:
		return field.Invalid(path, "", "is no field that Talos knows here")
	case openapierrors.InvalidTypeCode:
		return field.Invalid(path, "", "is of the wrong type: "+withoutValues(typeOnly{fault}))
	case openapierrors.EnumFailCode:
		var allowed []string
		for _, value := range fault.Values {
			allowed = append(allowed, fmt.Sprint(value))
		}
		return field.Invalid(path, "", "must be one of "+strings.Join(allowed, ", "))
	}
	return field.Invalid(path, "", "has a value that Talos doesn't take here")
}

// typeOnly is the part of a message about types that names the types.
type typeOnly struct{ fault *openapierrors.Validation }

func (t typeOnly) Error() string {
	_, after, found := strings.Cut(t.fault.Error(), "must be of type ")
	if !found {
		return "see Talos' reference"
	}
	return "expected " + after
}

// below is a path below another, from the validator's spelling: a.b[0].c
func below(path *field.Path, at string) *field.Path {
	for part := range strings.SplitSeq(at, ".") {
		name, index, indexed := strings.Cut(part, "[")
		if name != "" {
			path = path.Child(name)
		}
		if i, err := strconv.Atoi(strings.TrimSuffix(index, "]")); indexed && err == nil {
			path = path.Index(i)
		}
	}
	return path
}

// marker takes the place of secrets; nobody writes it by chance. Keys and certificates are bytes, which are written in
// base64.
const marker = "ichor-redacted-3f6b9d51c0e24f0d-"

var markers = []string{marker, base64.StdEncoding.EncodeToString([]byte(marker[:len(marker)/3*3]))}

// findSecrets finds the fields that Talos itself takes for secrets: those that its redaction replaces.
func findSecrets(loaded coreconfig.Provider, section string, path *field.Path) (field.ErrorList, error) {
	var errs field.ErrorList
	for _, document := range loaded.RedactSecrets(marker).Documents() {
		if _, deletes := document.(configloader.Selector); deletes {
			continue // names what is to go, and holds no values
		}
		text, err := encoder.NewEncoder(document, encoder.WithComments(encoder.CommentsDisabled)).Encode()
		if err != nil {
			return nil, errors.New("the part can't be looked through for secrets")
		}
		var value any
		if err := yaml.Unmarshal(text, &value); err != nil {
			return nil, errors.New("the part can't be looked through for secrets")
		}
		if fields, ok := value.(map[string]any); ok && section != "" {
			value = fields[section]
		}
		errs = append(errs, marked(value, path)...)
	}
	return errs, nil
}

func marked(value any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch value := value.(type) {
	case string:
		if slices.ContainsFunc(markers, func(marker string) bool { return strings.Contains(value, marker) }) {
			errs = append(errs, field.Forbidden(path, "is a secret, which everybody who may read this object could read; name a Secret for it in spec.secretValues"))
		}
	case []any:
		for i := range value {
			errs = append(errs, marked(value[i], path.Index(i))...)
		}
	case map[string]any:
		for key, member := range value {
			errs = append(errs, marked(member, path.Child(key))...)
		}
		slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	}
	return errs
}
