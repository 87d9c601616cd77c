"""`rlzoo import`: a run of another trainer as a run folder.

May import the core and modules that verbs share. No trainer, and torch only for files of slime.

    binary      TensorBoard's and wandb's record files
    command     the arguments and the printed output
    console     console output of verl, slime and SkyRL
    folder      writing the run folder
    found       a run as found: steps, settings, rollouts
    names       rlzoo's names for each trainer's metrics and settings (trainers.yaml)
    pickled     settings in a pickle, read without running it
    rollouts    prompts and responses, and the metrics computed from them
    sources     the files in a folder and their formats
    tabular     JSON lines, JSON, CSV and parquet
"""
