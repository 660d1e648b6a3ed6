// SPDX-License-Identifier: Apache-2.0

package talosmachines

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/klog/v2"

	"maesh.dev/ichor/pkg/apis/ichor"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/machineconfig/textdiff"
)

const (
	// maxInputPatches is how many patches the inputs of a revision name.
	maxInputPatches = 1000
	// maxPackedDiff is how large a difference is kept, packed, in bytes. A larger one can be made of the two texts.
	maxPackedDiff = 64 << 10
	// recordAttempts bounds how often a revision is numbered anew because another one was faster.
	recordAttempts = 3
)

// HistoryREST is talosmachines/history: what was rendered for the machine lately. GET reads it, and POST, which Ichor's
// controller alone may, adds the configuration that was rendered last.
type HistoryREST struct {
	machines   *genericregistry.Store
	histories  *Histories
	neighbours Neighbours
}

var (
	_ rest.GetterWithOptions = &HistoryREST{}
	_ rest.NamedCreater      = &HistoryREST{}
	_ rest.Storage           = &HistoryREST{}
)

// NewHistory builds the subresource.
func (s *Storage) NewHistory(neighbours Neighbours) *HistoryREST {
	return &HistoryREST{machines: s.Machine.Store, histories: s.histories, neighbours: neighbours}
}

// New returns an empty history.
func (*HistoryREST) New() runtime.Object { return &ichor.TalosMachineHistory{} }

// Destroy closes the storage of revisions.
func (r *HistoryREST) Destroy() { r.histories.Destroy() }

// NewGetOptions are the query parameters.
func (*HistoryREST) NewGetOptions() (runtime.Object, bool, string) {
	return &ichor.TalosMachineHistoryOptions{}, false, ""
}

// Get reads the history: all of it without texts, or one revision with its text.
func (r *HistoryREST) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	obj, err := r.machines.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	machine := obj.(*ichor.TalosMachine)
	stored, err := r.histories.list(ctx, machine.UID)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	wanted, _ := options.(*ichor.TalosMachineHistoryOptions)
	if wanted == nil || wanted.Revision == 0 {
		return overview(machine, stored), nil
	}
	for i := range stored {
		if stored[i].Revision.Revision != wanted.Revision {
			continue
		}
		revision, err := unpacked(&stored[i])
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return &ichor.TalosMachineHistory{ObjectMeta: identify(machine), Revisions: []ichor.ConfigRevision{revision}}, nil
	}
	return nil, noRevision(name, wanted.Revision, stored)
}

// overview is the history without texts, the newest first.
func overview(machine *ichor.TalosMachine, stored []ichor.StoredConfigRevision) *ichor.TalosMachineHistory {
	history := &ichor.TalosMachineHistory{ObjectMeta: identify(machine)}
	for i := len(stored) - 1; i >= 0 && len(history.Revisions) < maxRevisions; i-- {
		history.Revisions = append(history.Revisions, stored[i].Revision)
	}
	return history
}

func unpacked(stored *ichor.StoredConfigRevision) (ichor.ConfigRevision, error) {
	revision := *stored.Revision.DeepCopy()
	var err error
	if revision.Text, err = unpack(stored.Text); err != nil {
		return revision, err
	}
	revision.Diff, err = unpack(stored.Diff)
	return revision, err
}

// noRevision is a 404 that says which revisions there are.
func noRevision(machine string, revision int64, stored []ichor.StoredConfigRevision) error {
	kept := "none is"
	if len(stored) > 0 {
		kept = fmt.Sprintf("%d to %d are", stored[0].Revision.Revision, stored[len(stored)-1].Revision.Revision)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("revision %d of the configuration of machine %s isn't kept: %s", revision, machine, kept),
		Details: &metav1.StatusDetails{Group: v1alpha1.GroupName, Kind: "talosmachines", Name: machine},
	}}
}

// Create adds the one revision of the history that it is given, unless it is the newest already: whoever isn't sure whether
// it was added adds it again. A resourceVersion in the metadata must be the machine's; so what is recorded is never of an older
// machine of the name.
func (r *HistoryREST) Create(ctx context.Context, name string, obj runtime.Object, createValidation rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	given := obj.(*ichor.TalosMachineHistory)
	if given.Name != "" && given.Name != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the history is of machine %s, and was sent to %s", given.Name, name))
	}
	if createValidation != nil {
		if err := createValidation(ctx, given.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := judgeRevision(name, given); err != nil {
		return nil, err
	}
	found, err := r.machines.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	machine := found.(*ichor.TalosMachine)
	if err := r.fits(machine, given); err != nil {
		return nil, apierrors.NewConflict(ichor.Resource("talosmachines"), name, err)
	}
	now, err := r.authors(ctx, machine)
	if err != nil {
		return nil, err
	}
	return r.record(ctx, machine, &given.Revisions[0], now, dryrun.IsDryRun(options.DryRun))
}

// fits holds what is to be recorded against the machine as it is.
func (*HistoryREST) fits(machine *ichor.TalosMachine, given *ichor.TalosMachineHistory) error {
	switch {
	case given.ResourceVersion != "" && given.ResourceVersion != machine.ResourceVersion:
		return errors.New("the machine has changed since the configuration was rendered; render it anew")
	case machine.Spec.ApprovalState != ichor.ApprovalState(v1alpha1.ApprovalApproved):
		return errors.New("nothing is rendered for a machine that isn't approved")
	}
	return nil
}

// authors say who wrote what the configuration is made of. What isn't there has no author.
func (r *HistoryREST) authors(ctx context.Context, machine *ichor.TalosMachine) (authors, error) {
	now := authors{patches: map[string]authored{}}
	cluster, err := r.neighbours.Cluster(ctx, machine.Spec.ClusterRef.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return now, err
	}
	if err == nil {
		now.cluster = authorOf(&cluster.ObjectMeta)
	}
	patches, err := r.neighbours.Patches(ctx)
	if err != nil {
		return now, err
	}
	for i := range patches {
		now.patches[patches[i].Name] = authorOf(&patches[i].ObjectMeta)
	}
	return now, nil
}

// record adds a revision behind the newest.
func (r *HistoryREST) record(ctx context.Context, machine *ichor.TalosMachine, given *ichor.ConfigRevision, now authors, dry bool) (runtime.Object, error) {
	for range recordAttempts {
		stored, err := r.histories.list(ctx, machine.UID)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if len(stored) > 0 && stored[len(stored)-1].Revision.Hash == given.Hash {
			if !dry {
				err = r.histories.rewrite(ctx, stored)
			}
			return overview(machine, stored), internal(err)
		}
		next, err := nextRevision(machine.UID, stored, given, now)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		stored = append(stored, *next)
		if dry {
			return overview(machine, stored), nil
		}
		if err := r.histories.create(ctx, next); storage.IsExist(err) {
			continue
		} else if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		if err := r.histories.trim(ctx, stored); err != nil {
			// It is recorded; the next one removes what is too much.
			klog.FromContext(ctx).Error(err, "A machine has more revisions of its configuration than it should for now", "machine", machine.Name)
		}
		return overview(machine, stored), nil
	}
	return nil, apierrors.NewConflict(ichor.Resource("talosmachines"), machine.Name, errors.New("other configurations are being recorded; try again"))
}

func internal(err error) error {
	if err == nil {
		return nil
	}
	return apierrors.NewInternalError(err)
}

// nextRevision is what is stored of a configuration that follows on others.
func nextRevision(machine types.UID, stored []ichor.StoredConfigRevision, given *ichor.ConfigRevision, now authors) (*ichor.StoredConfigRevision, error) {
	at := nowFunc().Rfc3339Copy()
	next := &ichor.StoredConfigRevision{Revision: ichor.ConfigRevision{
		Revision: 1, Hash: given.Hash, Time: at, Inputs: *given.Inputs.DeepCopy(), TextOmitted: given.TextOmitted,
	}}
	var before *ichor.ConfigRevisionInputs
	if len(stored) > 0 {
		last := &stored[len(stored)-1]
		before, next.Revision.Revision = &last.Revision.Inputs, last.Revision.Revision+1
		text, err := unpack(last.Text)
		if err != nil {
			return nil, err
		}
		if text != "" && given.Text != "" {
			from, to := fmt.Sprintf("revision %d", last.Revision.Revision), fmt.Sprintf("revision %d", next.Revision.Revision)
			if next.Diff, err = pack(textdiff.Unified(from, to, text, given.Text)); err != nil {
				return nil, err
			}
			if len(next.Diff) > maxPackedDiff {
				next.Diff = nil
			}
		}
	}
	next.Revision.Causes = causesOf(before, &next.Revision.Inputs, now)
	next.ObjectMeta = metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", machine, next.Revision.Revision), UID: machine, CreationTimestamp: at}
	var err error
	next.Text, err = pack(given.Text)
	return next, err
}

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// judgeRevision says what is wrong with what is to be recorded.
func judgeRevision(name string, given *ichor.TalosMachineHistory) error {
	path := field.NewPath("revisions")
	if len(given.Revisions) != 1 {
		return apierrors.NewInvalid(v1alpha1.Kind("TalosMachineHistory"), name, field.ErrorList{
			field.Invalid(path, len(given.Revisions), "must be exactly one: the configuration that was rendered last"),
		})
	}
	revision, path := &given.Revisions[0], path.Index(0)
	if len(revision.Text) > v1alpha1.MaxRevisionText {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"the text of a configuration is kept up to %d bytes, and this one has %d; leave it out and say so in textOmitted", v1alpha1.MaxRevisionText, len(revision.Text)))
	}
	var errs field.ErrorList
	if !hashPattern.MatchString(revision.Hash) {
		errs = append(errs, field.Invalid(path.Child("hash"), revision.Hash, "must be a SHA-256 in hexadecimal"))
	}
	if (revision.Text == "") == (revision.TextOmitted == "") {
		errs = append(errs, field.Invalid(path.Child("textOmitted"), revision.TextOmitted, "must say why there is no text, if and only if there is none"))
	}
	if len(revision.TextOmitted) > v1alpha1.MaxTextOmitted {
		errs = append(errs, field.TooLong(path.Child("textOmitted"), "", v1alpha1.MaxTextOmitted))
	}
	errs = append(errs, judgeInputs(&revision.Inputs, path.Child("inputs"))...)
	if len(errs) > 0 {
		return apierrors.NewInvalid(v1alpha1.Kind("TalosMachineHistory"), name, errs)
	}
	return nil
}

func judgeInputs(inputs *ichor.ConfigRevisionInputs, path *field.Path) field.ErrorList {
	if len(inputs.Patches) > maxInputPatches {
		return field.ErrorList{field.TooMany(path.Child("patches"), len(inputs.Patches), maxInputPatches)}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, patch := range inputs.Patches {
		at := path.Child("patches").Index(i).Child("name")
		switch {
		case patch.Name == "":
			errs = append(errs, field.Required(at, "a patch has a name"))
		case len(patch.Name) > maxName:
			errs = append(errs, field.TooLong(at, "", maxName))
		case seen[patch.Name]:
			errs = append(errs, field.Duplicate(at, patch.Name))
		}
		seen[patch.Name] = true
	}
	for _, each := range []struct {
		at   *field.Path
		text string
	}{
		{path.Child("cluster", "name"), inputs.Cluster.Name},
		{path.Child("approvedBy"), inputs.ApprovedBy},
		{path.Child("versions", "talos"), inputs.Versions.Talos},
		{path.Child("versions", "kubernetes"), inputs.Versions.Kubernetes},
		{path.Child("versions", "kubeAPIServer"), inputs.Versions.KubeAPIServer},
		{path.Child("versions", "kubeControllerManager"), inputs.Versions.KubeControllerManager},
		{path.Child("versions", "kubeScheduler"), inputs.Versions.KubeScheduler},
		{path.Child("versions", "schematicID"), inputs.Versions.SchematicID},
		{path.Child("versions", "configContract"), inputs.Versions.ConfigContract},
	} {
		if len(each.text) > maxInput {
			errs = append(errs, field.TooLong(each.at, "", maxInput))
		}
	}
	return errs
}

const (
	// maxName is how long names of objects may be.
	maxName = 253
	// maxInput is how long every other text among the inputs may be; names of users are the longest.
	maxInput = 1024
)
