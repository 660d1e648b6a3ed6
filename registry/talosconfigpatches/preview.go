// SPDX-License-Identifier: Apache-2.0

package talosconfigpatches

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/apis/ichor/validation"
	"maesh.dev/ichor/pkg/machineconfig"
	"maesh.dev/ichor/registry/verbs"
)

// previewTime bounds what a preview may take; machines that are left then are counted. It is well within the minute that
// the kube-apiserver gives a request.
const previewTime = 20 * time.Second

// PreviewREST is talosconfigpatches/preview: what machines would be given if the patch was written, or deleted. It stores
// nothing and asks no machine. It shows parts of configurations, so whoever asks must be allowed to read those.
type PreviewREST struct {
	store *genericregistry.Store
	seer  *seer
}

var (
	_ rest.NamedCreater = &PreviewREST{}
	_ rest.Storage      = &PreviewREST{}
)

// New returns an empty question.
func (*PreviewREST) New() runtime.Object { return &ichor.TalosConfigPatchPreview{} }

// Destroy does nothing: the store belongs to the main resource.
func (*PreviewREST) Destroy() {}

// Create answers a question. What couldn't be written is refused as the write would be.
func (r *PreviewREST) Create(ctx context.Context, name string, obj runtime.Object, createValidation rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	preview, ok := obj.(*ichor.TalosConfigPatchPreview)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TalosConfigPatchPreview: %T", obj))
	}
	if preview.Name != "" && preview.Name != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the preview is of patch %s, and the path of the request names %s", preview.Name, name))
	}
	if err := r.seer.checker.Require(ctx, verbs.ReadConfig, ""); err != nil {
		return nil, err
	}
	if createValidation != nil {
		if err := createValidation(ctx, preview.DeepCopy()); err != nil {
			return nil, err
		}
	}
	if errs := validation.ValidateTalosConfigPatchPreview(preview); len(errs) > 0 {
		return nil, apierrors.NewInvalid(v1alpha1.Kind("TalosConfigPatchPreview"), name, errs)
	}
	asked, err := r.change(ctx, name, &preview.Spec)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, previewTime)
	defer cancel()
	done, err := r.seer.turn(bounded)
	if err != nil {
		return nil, apierrors.NewTooManyRequests("others ask what patches would do, and each takes a while", 5)
	}
	defer done()
	scene, err := r.seer.look(bounded, asked)
	if err != nil {
		return nil, err
	}
	answer := &ichor.TalosConfigPatchPreview{Spec: preview.Spec}
	answer.Name = name
	foresight, err := scene.foresee(bounded)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if answer.Status, err = answerOf(foresight); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	answer.Status.Warnings = bounds(append(asked.remarks(scene.cluster), answer.Status.Warnings...))
	if wanted := preview.Spec.Render; wanted != nil {
		err = r.render(scene, wanted, &answer.Status)
	}
	return answer, err
}

// change judges what is asked as the write would be.
func (r *PreviewREST) change(ctx context.Context, name string, spec *ichor.TalosConfigPatchPreviewSpec) (change, error) {
	var stored *ichor.TalosConfigPatch
	obj, err := r.store.Get(ctx, name, &metav1.GetOptions{})
	switch {
	case err == nil:
		stored = obj.(*ichor.TalosConfigPatch)
	case !apierrors.IsNotFound(err) || spec.Change == ichor.PatchDelete:
		return change{}, err
	}
	if spec.Change == ichor.PatchDelete {
		return change{before: stored}, nil
	}
	if stored == nil {
		patch := &ichor.TalosConfigPatch{Spec: *spec.Patch.DeepCopy()}
		patch.Name = name
		rest.FillObjectMetaSystemFields(patch)
		return change{after: patch}, rest.BeforeCreate(r.store.CreateStrategy, ctx, patch)
	}
	patch := stored.DeepCopy()
	patch.Spec = *spec.Patch.DeepCopy()
	return change{before: stored, after: patch}, rest.BeforeUpdate(r.store.UpdateStrategy, ctx, patch, stored)
}

// remarks are what else there is to know of a change.
func (c change) remarks(cluster *v1alpha1.TalosCluster) []string {
	var said []string
	if cluster == nil {
		said = append(said, fmt.Sprintf("there is no TalosCluster %s, so there are no machines that the patch would be for", c.target().ClusterRef.Name))
	}
	if c.after == nil {
		return said
	}
	said = append(said, validation.ConfigPatchWarnings(c.after)...)
	if c.before == nil {
		return said
	}
	was := map[string]ichor.SecretKeyReference{}
	for _, value := range c.before.Spec.SecretValues {
		was[value.Path] = value.SecretKeyRef
	}
	for _, value := range c.after.Spec.SecretValues {
		if before, there := was[value.Path]; there && before != value.SecretKeyRef {
			said = append(said, fmt.Sprintf("spec.secretValues[path=%s] comes from another place, and what is in Secrets is not compared here", value.Path))
		}
	}
	return said
}

// render adds the whole configuration of one machine.
func (r *PreviewREST) render(scene *scene, wanted *ichor.PreviewRender, status *ichor.TalosConfigPatchPreviewStatus) error {
	var machine *v1alpha1.TalosMachine
	for _, m := range scene.machines {
		if m.Name == wanted.Machine {
			machine = m
		}
	}
	if machine == nil || scene.cluster == nil {
		return apierrors.NewConflict(ichor.Resource("talosmachines"), wanted.Machine, errors.New("it is no approved machine of the patch's cluster, so nothing is rendered for it"))
	}
	patches := scene.change.Among(scene.patches)
	if wanted.Alone {
		patches = scene.change.Among(nil)
	}
	view, err := machineconfig.Preview(scene.cluster, machine, patches, false)
	if err != nil {
		return apierrors.NewConflict(ichor.Resource("talosmachines"), wanted.Machine, fmt.Errorf("its configuration can't be rendered: %w", err))
	}
	status.Configuration = string(view.Text)
	return nil
}
