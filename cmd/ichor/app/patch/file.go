// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

const (
	// maxFile and maxObjects bound what is read: a patch has at most 512 KiB of configuration.
	maxFile    = 8 << 20
	maxObjects = 64
	// fieldManager owns what is applied.
	fieldManager = "ichor"
)

// object is a patch as it is written in a file: nothing is filled in, so that server-side apply owns just that.
type object struct {
	name string
	body []byte
}

// readFile reads the patches of a file, or of standard input for "-".
func readFile(env *cli.Env, path string) ([]object, error) {
	var from io.Reader = env.In
	if path != "-" {
		file, err := os.Open(path) //nolint:gosec // the file that the user named
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // it was only read
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d MiB", path, maxFile>>20)
	}
	objects, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return objects, nil
}

func decode(text []byte) ([]object, error) {
	var objects []object
	seen := map[string]bool{}
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		var fields map[string]any
		err := decoder.Decode(&fields)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(fields) == 0 {
			continue // an empty document
		}
		found := &unstructured.Unstructured{Object: fields}
		if found.GetKind() != "TalosConfigPatch" || found.GetAPIVersion() != v1alpha1.SchemeGroupVersion.String() {
			return nil, fmt.Errorf("object %d is a %q of %q, not a TalosConfigPatch of %s", len(objects)+1, found.GetKind(), found.GetAPIVersion(), v1alpha1.SchemeGroupVersion)
		}
		if found.GetName() == "" {
			return nil, fmt.Errorf("object %d has no metadata.name", len(objects)+1)
		}
		if seen[found.GetName()] {
			return nil, fmt.Errorf("patch %s is in it twice", found.GetName())
		}
		seen[found.GetName()] = true
		body, err := json.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("patch %s: %w", found.GetName(), err)
		}
		if objects = append(objects, object{found.GetName(), body}); len(objects) > maxObjects {
			return nil, fmt.Errorf("there are more than %d patches in it", maxObjects)
		}
	}
	if len(objects) == 0 {
		return nil, errors.New("there is no patch in it")
	}
	return objects, nil
}

// apply writes a patch, or only tries to, by server-side apply.
func (f object) apply(ctx context.Context, client versioned.Interface, dryRun, force bool) (*v1alpha1.TalosConfigPatch, error) {
	options := metav1.PatchOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict, Force: ptr.To(force)}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return client.IchorV1alpha1().TalosConfigPatches().Patch(ctx, f.name, types.ApplyPatchType, f.body, options)
}

// silent is a client that leaves out the server's warnings: those of a dry run say in short what is shown at length.
func silent(env *cli.Env) (versioned.Interface, error) {
	config, err := env.RESTConfig()
	if err != nil {
		return nil, err
	}
	config.WarningHandler = rest.NoWarnings{}
	config.WarningHandlerWithContext = nil
	return versioned.NewForConfig(config)
}

// tried is what would be stored of a file's patch, and what that would do.
type tried struct {
	object
	patch   *v1alpha1.TalosConfigPatch
	preview *v1alpha1.TalosConfigPatchPreview
}

// try has the server check every patch of a file and tell what it would do. The patches are looked at one by one.
func try(ctx context.Context, client versioned.Interface, objects []object, force bool, render *v1alpha1.PreviewRender) ([]tried, error) {
	var all []tried
	for _, object := range objects {
		patch, err := object.apply(ctx, client, true, force)
		if err != nil {
			return nil, fmt.Errorf("patch %s: %w", object.name, err)
		}
		answer, err := preview(ctx, client, object.name, v1alpha1.TalosConfigPatchPreviewSpec{Patch: &patch.Spec, Render: render})
		if err != nil {
			return nil, fmt.Errorf("patch %s: %w", object.name, err)
		}
		all = append(all, tried{object, patch, answer})
	}
	return all, nil
}
