"""`rlzoo import`: a run of another trainer as a run folder.

May import the core and modules that verbs share. No torch, and no trainer.

    binary      TensorBoard's and wandb's record files
    command     the arguments, and what is printed
    console     lines that trainers print: verl's, slime's and SkyRL's
    folder      the run folder that is written
    found       a run as it was found: steps, settings, rollouts
    names       metrics and settings of each trainer by rlzoo's names (trainers.yaml)
    pickled     TRL's training_args.bin, read without running it
    rollouts    prompts and responses, and the metrics that follow from them
    sources     which files a folder has, and what each of them is
    tabular     JSON lines, JSON and CSV
"""
